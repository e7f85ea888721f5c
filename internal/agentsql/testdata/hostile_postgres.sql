#### other tables
SELECT * FROM public.secrets
SELECT * FROM private.secrets
SELECT * FROM "public"."secrets"
SELECT * FROM U&"\0073ecrets"
SELECT * FROM U&"!0073ecrets" UESCAPE '!'
SELECT * FROM U&"\+000073ecrets"
SELECT * FROM hob_demo.customers
SELECT * FROM ONLY public.secrets
SELECT * FROM public.secrets TABLESAMPLE BERNOULLI (100)
SELECT * FROM public.secrets TABLESAMPLE SYSTEM (100)
TABLE secrets
TABLE public.secrets
TABLE orders
WITH a AS (TABLE public.secrets) SELECT * FROM a
SELECT * FROM (TABLE public.secrets) x
SELECT (TABLE public.secrets LIMIT 1)
SELECT id FROM orders UNION ALL TABLE public.secret_ids
SELECT * FROM orders, LATERAL (SELECT token FROM public.secrets s WHERE s.id = orders.id) x
SELECT * FROM orders LEFT JOIN LATERAL (SELECT token FROM public.secrets) x ON true
SELECT ROW(s.*) FROM public.secrets s
SELECT s FROM public.secrets s
SELECT to_jsonb(s) FROM public.secrets s
SELECT row_to_json(s) FROM public.secrets s
SELECT ARRAY(SELECT token FROM public.secrets)
SELECT (ARRAY(SELECT token FROM public.secrets))[1]
SELECT (ARRAY['a', 'b'])[(SELECT count(*)::int FROM public.secrets)]
SELECT string_agg(token, ',') FROM public.secrets
SELECT json_agg(s) FROM public.secrets s
SELECT 'x' = ANY (SELECT token FROM public.secrets)
SELECT 'x' = ALL (SELECT token FROM public.secrets)
SELECT (1, 'x') IN (SELECT id, token FROM public.secrets)
SELECT DISTINCT ON ((SELECT token FROM public.secrets LIMIT 1)) id FROM orders
SELECT id FROM orders ORDER BY id USING OPERATOR(hob_demo.<<<)
SELECT id FROM orders FETCH FIRST (SELECT count(*) FROM public.secrets) ROWS ONLY
SELECT count(*) FROM orders GROUP BY ROLLUP ((SELECT token FROM public.secrets LIMIT 1))
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY (SELECT count(*) FROM public.secrets)) FROM orders
SELECT lag(id, (SELECT count(*)::int FROM public.secrets)) OVER () FROM orders
SELECT sum(id) OVER (ROWS (SELECT count(*) FROM public.secrets) PRECEDING) FROM orders
SELECT * FROM generate_series(1, (SELECT count(*) FROM public.secrets))
SELECT * FROM ROWS FROM (generate_series(1, 2), unnest(ARRAY(SELECT token FROM public.secrets))) x
SELECT * FROM JSON_TABLE('[]', '$' COLUMNS (a int PATH '$')) x
SELECT * FROM XMLTABLE('/a' PASSING '<a/>' COLUMNS b text PATH '.') x
SELECT xmlelement(name a, 'b')
SELECT xmlforest(id) FROM orders
SELECT xmlparse(DOCUMENT '<a/>')
SELECT '<a/>'::xml
#### functions
SELECT query_to_xml('SELECT * FROM public.secrets', true, true, '')
SELECT table_to_xml('public.secrets', true, true, '')
SELECT schema_to_xml('public', true, true, '')
SELECT database_to_xml(true, true, '')
SELECT cursor_to_xml('hob_rows', 1, true, true, '')
SELECT query_to_xmlschema('SELECT 1', true, true, '')
#### catalogues
SELECT * FROM pg_class
SELECT * FROM pg_catalog.pg_class
SELECT relname FROM pg_class WHERE relname = 'secrets'
SELECT * FROM pg_tables
SELECT * FROM pg_roles
SELECT * FROM pg_user
SELECT rolname FROM pg_authid
SELECT * FROM pg_shadow
SELECT * FROM pg_settings
SELECT * FROM pg_stat_activity
SELECT query FROM pg_stat_activity
SELECT * FROM pg_stats
SELECT most_common_vals FROM pg_stats WHERE tablename = 'secrets'
SELECT * FROM pg_statistic
SELECT * FROM pg_proc
SELECT prosrc FROM pg_proc
SELECT * FROM pg_views
SELECT * FROM pg_attribute
SELECT * FROM pg_namespace
SELECT * FROM pg_hba_file_rules
SELECT * FROM pg_file_settings
SELECT * FROM pg_largeobject
SELECT * FROM pg_prepared_statements
SELECT * FROM pg_cursors
SELECT * FROM pg_locks
SELECT * FROM pg_timezone_names
SELECT * FROM pg_database
SELECT datname FROM pg_database
SELECT * FROM pg_temp.hob_check
SELECT * FROM hob_check
SELECT * FROM information_schema.tables
SELECT * FROM information_schema.columns
SELECT table_name FROM information_schema.tables
SELECT * FROM information_schema.role_table_grants
#### functions
SELECT current_user
SELECT session_user
SELECT user
SELECT current_role
SELECT current_catalog
SELECT current_schema
SELECT current_schema()
SELECT current_schemas(true)
SELECT current_database()
SELECT version()
SELECT inet_server_addr()
SELECT inet_server_port()
SELECT inet_client_addr()
SELECT pg_backend_pid()
SELECT pg_postmaster_start_time()
SELECT pg_conf_load_time()
SELECT current_setting('data_directory')
SELECT current_setting('port')
SELECT set_config('role', 'postgres', true)
SELECT set_config('statement_timeout', '0', false)
SELECT set_config('search_path', 'public', false)
SELECT pg_sleep(1)
SELECT pg_sleep_for('1 s')
SELECT pg_sleep_until(now() + '1 s')
SELECT pg_read_file('postgresql.conf')
SELECT pg_read_binary_file('PG_VERSION')
SELECT pg_ls_dir('.')
SELECT pg_stat_file('PG_VERSION')
SELECT * FROM pg_ls_logdir()
SELECT lo_create(0)
SELECT lo_import('/etc/passwd')
SELECT lo_export(1, '/tmp/x')
SELECT lo_get(1)
SELECT lo_from_bytea(0, 'x')
SELECT lo_unlink(1)
SELECT * FROM dblink('dbname=postgres', 'SELECT 1') AS t(a int)
SELECT ts_stat('SELECT to_tsvector(token) FROM public.secrets')
SELECT * FROM ts_stat('SELECT to_tsvector(token) FROM public.secrets')
SELECT ts_rewrite('a'::tsquery, 'SELECT token::tsquery, token::tsquery FROM public.secrets')
SELECT pg_get_viewdef('hob_demo.secret_view'::regclass)
SELECT pg_get_functiondef('hob_demo.steal'::regproc)
SELECT pg_get_userbyid(10)
SELECT pg_get_constraintdef(1)
SELECT pg_get_indexdef(1)
SELECT pg_get_expr('x', 1)
SELECT has_table_privilege('public.secrets', 'SELECT')
SELECT has_schema_privilege('private', 'USAGE')
SELECT pg_table_size('public.secrets')
SELECT pg_relation_size('public.secrets')
SELECT pg_total_relation_size('public.secrets')
SELECT pg_database_size('postgres')
SELECT pg_relation_filepath('orders')
SELECT pg_table_is_visible(1)
#### casts, types and operators
SELECT to_regclass('public.secrets')
SELECT to_regclass('public.nosuch')
SELECT to_regproc('steal')
SELECT to_regtype('secrets')
SELECT to_regnamespace('private')
SELECT to_regrole('postgres')
SELECT 'public.secrets'::regclass
SELECT 'nosuch'::regclass
SELECT 'secrets'::regclass::oid
SELECT CAST('secrets' AS regclass)
SELECT regclass 'secrets'
SELECT 1259::regclass
SELECT 10::regrole
SELECT 'private'::regnamespace
SELECT 'lower'::regproc
SELECT 'int4'::regtype
SELECT 16384::oid::regclass::text
SELECT oid '1'
SELECT '1'::oid
#### catalogues
SELECT tableoid FROM orders
SELECT tableoid::regclass FROM orders
SELECT ctid FROM orders
SELECT xmin FROM orders
SELECT cmax FROM orders
SELECT orders.tableoid, id FROM orders
#### functions
SELECT pg_typeof(1)
SELECT format_type(23, NULL)
SELECT obj_description(1)
SELECT col_description('secrets'::regclass, 1)
SELECT txid_current()
SELECT txid_current_snapshot()
SELECT pg_current_xact_id()
SELECT pg_current_snapshot()
SELECT pg_export_snapshot()
SELECT pg_current_wal_lsn()
SELECT nextval('hob_demo.counter')
SELECT setval('hob_demo.counter', 5)
SELECT currval('hob_demo.counter')
SELECT lastval()
SELECT last_value FROM hob_demo.counter
SELECT * FROM hob_demo.counter
SELECT pg_advisory_lock(1)
SELECT pg_try_advisory_lock(1)
SELECT pg_advisory_xact_lock(1)
SELECT pg_advisory_unlock_all()
SELECT pg_notify('a', 'b')
SELECT pg_listening_channels()
SELECT pg_terminate_backend(1)
SELECT pg_cancel_backend(1)
SELECT pg_reload_conf()
SELECT pg_rotate_logfile()
SELECT pg_switch_wal()
SELECT pg_create_restore_point('x')
SELECT pg_log_backend_memory_contexts(1)
SELECT pg_stat_reset()
SELECT setseed(0.5)
SELECT pg_client_encoding()
SELECT getdatabaseencoding()
SELECT pg_collation_for('a')
SELECT COLLATION FOR ('a')
SELECT pg_column_size(id) FROM orders
SELECT pg_input_is_valid('1', 'int4')
SELECT makeaclitem(10, 10, 'SELECT', false)
SELECT acldefault('r', 10)
SELECT aclexplode(NULL)
SELECT int4in('1')
SELECT textin('x')
SELECT record_out(ROW(1))
SELECT int4pl(1, 2)
SELECT texteq('a', 'b')
SELECT regclassout(1)
SELECT pg_catalog.pg_sleep(1)
SELECT "pg_sleep"(1)
SELECT PG_SLEEP(1)
SELECT U&"pg\005Fsleep"(1)
SELECT pg_catalog . pg_sleep (1)
SELECT pg_sleep/**/(1)
SELECT id FROM orders WHERE pg_sleep(1) IS NULL
SELECT id FROM orders ORDER BY pg_sleep(1)
SELECT id FROM orders GROUP BY id, pg_sleep(1)
SELECT id FROM orders LIMIT length(version())
SELECT count(*) FILTER (WHERE pg_sleep(1) IS NULL) FROM orders
SELECT sum(id) OVER (ORDER BY version()) FROM orders
SELECT * FROM orders JOIN products ON version() = 'x'
VALUES (version())
SELECT ARRAY[version()]
SELECT CASE WHEN true THEN version() END
SELECT coalesce(NULL, version())
SELECT greatest('a', version())
SELECT nullif(version(), 'a')
SELECT ROW(version())
SELECT version() = ANY (ARRAY['a'])
SELECT (SELECT version())
SELECT * FROM version()
SELECT * FROM pg_sleep(1)
SELECT * FROM orders, LATERAL version() v
SELECT * FROM ROWS FROM (version()) x
SELECT jsonb_build_object('v', version())
SELECT string_agg(version(), ',')
EXPLAIN SELECT pg_sleep(1)
SELECT hob_demo.steal()
SELECT steal()
SELECT * FROM hob_demo.steal()
SELECT hob_demo.lower('X')
SELECT hob_demo.total(id) FROM orders
SELECT total(id) FROM orders
#### casts, types and operators
SELECT 1 OPERATOR(hob_demo.+) 2
SELECT 1 <<< 2
SELECT 1 OPERATOR(hob_demo.<<<) 2
SELECT 'x'::hob_demo.guarded
SELECT 'x'::text::hob_demo.guarded
SELECT CAST(note AS hob_demo.guarded) FROM orders
SELECT 1::hob_demo.money_like
SELECT NULL::public.secrets
SELECT (NULL::public.secrets).token
SELECT jsonb_populate_record(NULL::public.secrets, '{}')
SELECT json_populate_recordset(NULL::public.secrets, '[]')
SELECT * FROM json_to_record('{"a":"x"}') AS x(a hob_demo.guarded)
SELECT * FROM json_to_record('{"a":"pg_class"}') AS x(a regclass)
SELECT * FROM jsonb_to_recordset('[{"a":"x"}]') AS x(a public.secrets)
SELECT 'a'::public.nosuchtype
SELECT 'a'::nosuchtype
SELECT NULL::private.secrets
SELECT '{1}'::regclass[]
SELECT ARRAY['secrets']::regclass[]
SELECT '(1)'::hob_demo.pair
SELECT id::hob_demo.money_like FROM orders
#### other tables
SELECT * FROM hob_demo.mood
SELECT hob_demo.orders.id FROM public.secrets
SELECT 'a' COLLATE hob_demo.own
#### locking
SELECT * FROM orders FOR UPDATE
SELECT * FROM orders FOR SHARE
SELECT * FROM orders FOR NO KEY UPDATE SKIP LOCKED
SELECT * FROM orders FOR KEY SHARE NOWAIT
SELECT * FROM (SELECT * FROM orders FOR UPDATE) x
#### writes inside a select
SELECT * INTO stolen FROM orders
SELECT * INTO TEMP stolen FROM orders
WITH x AS (DELETE FROM orders RETURNING *) SELECT * FROM x
WITH x AS (UPDATE orders SET note = 'x' RETURNING *) SELECT * FROM x
WITH x AS (INSERT INTO orders VALUES (99, 1, 'open', '2025-01-01') RETURNING *) SELECT * FROM x
SELECT * FROM (DELETE FROM orders RETURNING *) x
#### writes and utilities
MERGE INTO orders USING products ON false WHEN MATCHED THEN DELETE
TRUNCATE orders
COPY orders TO STDOUT
COPY (SELECT * FROM orders) TO PROGRAM 'cat'
SET search_path = public
SET ROLE postgres
RESET ALL
SHOW ALL
SHOW search_path
LISTEN x
NOTIFY x
LOCK TABLE orders
PREPARE x AS SELECT 1
EXECUTE x
DEALLOCATE ALL
DECLARE c CURSOR FOR SELECT 1
FETCH ALL FROM c
DO $$ BEGIN PERFORM 1; END $$
CALL x()
GRANT SELECT ON orders TO PUBLIC
REFRESH MATERIALIZED VIEW x
CLUSTER
CHECKPOINT
DISCARD ALL
LOAD 'x'
#### writes and utilities
EXPLAIN ANALYZE SELECT 1
EXPLAIN ANALYSE SELECT 1
EXPLAIN VERBOSE ANALYZE SELECT 1
EXPLAIN (ANALYZE) SELECT 1
EXPLAIN (ANALYZE true) SELECT 1
EXPLAIN (ANALYZE on, VERBOSE) SELECT 1
EXPLAIN (SETTINGS) SELECT 1
EXPLAIN (BUFFERS) SELECT 1
EXPLAIN ("analyze") SELECT 1
EXPLAIN (VERBOSE) DELETE FROM orders
EXPLAIN EXECUTE x
EXPLAIN DECLARE c CURSOR FOR SELECT 1
EXPLAIN CREATE TABLE x AS SELECT 1
EXPLAIN SELECT * FROM order_totals
EXPLAIN EXPLAIN SELECT 1
#### exhaustion
SELECT repeat('x', 1000000000)
SELECT repeat('x', id * 1000000) FROM orders
SELECT lpad('x', 1000000000)
SELECT rpad('x', 500000000, 'y')
SELECT repeat('x', (SELECT 1000000000))
#### text and syntax
SELECT E'\'' FROM public.secrets
SELECT $$;$$ FROM public.secrets
SELECT $a$ ' $a$, token FROM public.secrets
SELECT 1 AS ":relid", token AS "} {RANGETBLENTRY :relid 0" FROM public.secrets
SELECT '1' ":funcid", version() "\" :funcid 870"
SELECT nosuchcolumn FROM public.secrets
SELECT nosuchcolumn FROM public.nosuch
#### functions
SELECT o.peek FROM orders o
SELECT peek(o) FROM orders o
SELECT (o).peek FROM orders o
SELECT o.name FROM moods o
SELECT name(o.id::text) FROM orders o
SELECT (o).tableoid FROM orders o
#### text and syntax
SELECT 1 FROM orders) hob_statement, (SELECT 1
SELECT 1 FROM orders) hob_statement, LATERAL (SELECT token FROM public.secrets
#### casts, types and operators
SELECT o.id FROM orders o ORDER BY o.id USING OPERATOR(hob_demo.<<<)
SELECT NULL::hob_demo.orders
SELECT jsonb_populate_record(o, '{}') FROM orders o
#### functions
SELECT 'x' IS NORMALIZED AND version() IS NOT NULL
SELECT EXTRACT(epoch FROM pg_postmaster_start_time())
SELECT TRIM(BOTH version() FROM 'x')
SELECT now() AT TIME ZONE version()
SELECT SUBSTRING('a' FROM version())
SELECT POSITION(version() IN 'a')
SELECT 'a' LIKE version() ESCAPE 'x'
SELECT 1 BETWEEN 0 AND pg_backend_pid()
SELECT (SELECT ARRAY(SELECT rolname::text FROM pg_roles))
#### casts, types and operators
SELECT mix || 'x' FROM shades
SELECT 'x' || mix FROM shades
SELECT quote_literal(mix) FROM shades
SELECT quote_nullable(mix) FROM shades
SELECT 'x' || t FROM tints t
SELECT t || '' FROM tints t
SELECT quote_literal(t) FROM tints t
SELECT quote_literal(x) FROM (SELECT t AS x FROM tints t) y
SELECT quote_literal((SELECT t FROM tints t LIMIT 1))
SELECT quote_literal((ARRAY(SELECT t FROM tints t))[1])
SELECT to_json(s) FROM shades
SELECT to_jsonb(s) FROM shades
SELECT to_json(list) FROM shades
SELECT array_to_json(list) FROM shades
SELECT array_to_json(ARRAY[s]) FROM shades
SELECT json_agg(s) FROM shades
SELECT jsonb_agg(s) FROM shades
SELECT jsonb_agg(s) OVER () FROM shades
SELECT json_agg(list) FROM shades
SELECT json_object_agg(id, s) FROM shades
SELECT jsonb_object_agg(id, s) FROM shades
SELECT json_build_object('a', s) FROM shades
SELECT jsonb_build_object('a', s) FROM shades
SELECT json_build_array(s) FROM shades
SELECT jsonb_build_array(1, list) FROM shades
SELECT row_to_json(shades) FROM shades
SELECT to_json(shades) FROM shades
SELECT to_jsonb(x) FROM shades x
SELECT json_agg(x) FROM shades x
SELECT to_json(ROW(s)) FROM shades
SELECT row_to_json(ROW(1, s)) FROM shades
SELECT row_to_json(x) FROM (SELECT s FROM shades) x
SELECT to_json(x) FROM (SELECT max(s) FROM shades) x
SELECT to_json(j) FROM (shades a JOIN orders b USING (id)) j
WITH a AS (SELECT s FROM shades) SELECT to_json(a) FROM a
SELECT to_json(x) FROM (SELECT shades FROM shades) x
SELECT to_json(x) FROM (VALUES ((SELECT s FROM shades LIMIT 1))) x
SELECT to_json(ARRAY(SELECT shades FROM shades))
SELECT to_jsonb(coalesce(s, 'dark')) FROM shades
SELECT jsonb_build_object('a', unnest(list)) FROM shades
SELECT to_json(f) FROM shades, unnest(list) f
