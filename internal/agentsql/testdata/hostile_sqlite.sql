#### other tables
SELECT * FROM [secrets]
SELECT * FROM `secrets`
SELECT * FROM main.secrets
SELECT * FROM "main"."secrets"
SELECT * FROM main . secrets
#### catalogues
SELECT * FROM temp.sqlite_master
SELECT * FROM sqlite_master
SELECT * FROM sqlite_schema
SELECT * FROM main.sqlite_master
SELECT sql FROM sqlite_temp_master
SELECT * FROM sqlite_temp_schema
SELECT count(*) FROM sqlite_master
SELECT name FROM "sqlite_master"
SELECT * FROM sqlite_sequence
SELECT * FROM sqlite_stat1
SELECT * FROM sqlite_dbpage
SELECT * FROM dbstat
SELECT * FROM pragma_table_info('secrets')
SELECT * FROM pragma_table_list
SELECT * FROM pragma_database_list
SELECT * FROM pragma_function_list
SELECT * FROM pragma_compile_options
SELECT * FROM pragma_table_xinfo('secrets')
SELECT file FROM pragma_database_list()
SELECT (SELECT group_concat(name) FROM pragma_table_list)
#### writes and utilities
PRAGMA table_info(secrets)
PRAGMA database_list
PRAGMA query_only = 0
PRAGMA trusted_schema = 1
EXPLAIN PRAGMA database_list
ATTACH 'x.db' AS x
ATTACH ':memory:' AS x
DETACH main
#### other tables
SELECT * FROM hidden_docs
SELECT * FROM hidden_docs('word')
SELECT * FROM docs
SELECT * FROM docs WHERE docs MATCH 'word'
SELECT * FROM docs('word')
SELECT * FROM docs_data
SELECT * FROM docs_content
SELECT * FROM hidden_docs_content
SELECT c0 FROM hidden_docs_content
SELECT * FROM hidden_docs_data
SELECT * FROM leaky
SELECT id FROM leaky
SELECT count(*) FROM leaky
WITH leaky AS (SELECT token FROM secrets) SELECT * FROM leaky
WITH order_totals AS (SELECT token FROM secrets) SELECT * FROM order_totals
#### functions
SELECT load_extension('x')
SELECT load_extension('x', 'y')
SELECT readfile('/etc/passwd')
SELECT writefile('/tmp/x', 'y')
SELECT edit('x')
SELECT fts3_tokenizer('simple')
SELECT fts5(1)
SELECT fts5_source_id()
SELECT sqlite_version()
SELECT sqlite_source_id()
SELECT sqlite_compileoption_get(1)
SELECT sqlite_compileoption_used('THREADSAFE')
SELECT sqlite_offset(id) FROM orders
SELECT sqlite_log(1, 'x')
SELECT last_insert_rowid()
SELECT changes()
SELECT total_changes()
SELECT randomblob(1000000000)
SELECT zeroblob(1000000000)
SELECT hex(zeroblob(1000000000))
SELECT hex(randomblob(1000000000))
SELECT "load_extension"('x')
SELECT LOAD_EXTENSION('x')
SELECT id FROM orders WHERE id REGEXP 'x'
SELECT id FROM orders WHERE id MATCH 'x'
SELECT match('a', 'b')
SELECT bm25(docs) FROM docs
SELECT snippet(docs, 0, '', '', '', 1) FROM docs
SELECT rtreecheck('x')
SELECT geopoly_debug(1)
SELECT subtype(1)
SELECT unistr_quote('x')
#### other tables
SELECT * FROM orders INDEXED BY secret_index
SELECT * FROM json_each((SELECT token FROM secrets LIMIT 1))
SELECT value FROM json_each((SELECT json_group_array(token) FROM secrets))
SELECT id, (SELECT json_group_array(token) FROM secrets) FROM orders
SELECT json_object('t', (SELECT token FROM secrets LIMIT 1))
SELECT iif((SELECT token FROM secrets LIMIT 1) LIKE 'T%', 1, 0)
SELECT group_concat((SELECT token FROM secrets LIMIT 1)) FROM orders
SELECT id FROM orders WHERE (id, note) IN (SELECT id, token FROM secrets)
SELECT id FROM orders WHERE id IN secrets
SELECT id FROM orders WHERE 1 IN secrets
SELECT id IN secrets FROM orders
SELECT * FROM orders, json_each((SELECT json_array(token) FROM secrets))
SELECT rowid FROM secrets
SELECT _rowid_ FROM secrets
SELECT oid FROM secrets
#### writes and utilities
REPLACE INTO orders VALUES (1, 1, 'open', '2025-01-01', NULL)
DELETE FROM orders RETURNING *
INSERT INTO orders VALUES (99, 1, 'open', '2025-01-01', NULL) RETURNING *
#### writes inside a select
WITH x AS (SELECT 1) REPLACE INTO orders VALUES (1, 1, 'open', '2025-01-01', NULL)
#### other tables
EXPLAIN QUERY PLAN SELECT * FROM secrets
EXPLAIN QUERY PLAN SELECT * FROM leaky
#### text and syntax
EXPLAIN EXPLAIN SELECT 1
#### writes and utilities
CREATE VIRTUAL TABLE v USING fts5(a)
CREATE TRIGGER t AFTER INSERT ON orders BEGIN SELECT 1; END
CREATE INDEX i ON orders (note)
DROP INDEX orders_by_customer
VACUUM INTO '/tmp/hob-copy.db'
RELEASE a
END
#### text and syntax
SELECT ?1
SELECT ?
SELECT :name
SELECT @name
SELECT id FROM orders WHERE note = "TOP-SECRET"
#### functions
SELECT * FROM generate_series(1, 10)
SELECT * FROM fts5vocab
SELECT * FROM csv
#### other tables
SELECT x'00' || (SELECT token FROM secrets LIMIT 1)
SELECT token FROM secrets UNION SELECT note FROM orders ORDER BY 1
TABLE secrets
TABLE orders
SELECT max(token) OVER () FROM secrets
SELECT substr((SELECT token FROM secrets LIMIT 1), 1, 1) = 'T'
SELECT (SELECT token FROM secrets LIMIT 1) LIKE 'T%'
SELECT (SELECT token FROM secrets LIMIT 1) GLOB 'T*'
SELECT CAST((SELECT token FROM secrets LIMIT 1) AS INTEGER)
SELECT 1 WHERE (SELECT count(*) FROM secrets) = 1
SELECT nosuchcolumn FROM secrets
SELECT token FROM main.nosuch
SELECT
