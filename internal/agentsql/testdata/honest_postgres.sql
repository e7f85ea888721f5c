SELECT string_agg(sku, '; ' ORDER BY id) AS skus FROM products WHERE category = 'office'
SELECT '2025-01-31'::date + interval '1 month' AS d, date_trunc('month', '2025-03-04'::timestamp) AS m, '2025-01-02'::date - '2025-01-01'::date AS days
SELECT to_char(ordered_on, 'YYYY-MM') AS month, count(*) AS n FROM orders GROUP BY month ORDER BY month
SELECT extract(year FROM ordered_on) AS y, extract(dow FROM ordered_on) AS d FROM orders WHERE id = 1
SELECT '{"a":[1,2]}'::jsonb #> '{a,1}' AS x, '{"b":"c"}'::json ->> 'b' AS y, data -> 'k' AS k FROM moods WHERE id = 1
SELECT value FROM jsonb_array_elements('[1,2,3]') WHERE value::int > 1
SELECT jsonb_agg(id ORDER BY id) AS ids, array_agg(id ORDER BY id) AS list FROM orders WHERE id < 4
SELECT json_build_object('id', id, 'sku', sku) AS o FROM products WHERE id = 1
SELECT to_jsonb(p) AS row FROM products p WHERE id = 1
SELECT id FROM hob_demo.orders WHERE hob_demo.orders.id = 1
SELECT id FROM moods WHERE feels = 'glad'
SELECT id, feels, feels::text AS word, tags, code FROM moods ORDER BY feels DESC
SELECT id FROM moods WHERE 'a' = ANY (tags)
SELECT id FROM moods WHERE data @> '{"k": [2]}' AND code = 'abc'
SELECT (price_cents / 100.0)::numeric(10, 2) AS price FROM products WHERE id = 1
SELECT id FROM products WHERE name ILIKE '%MUG%' ORDER BY id
SELECT id FROM products WHERE name ~* '^stone' OR sku SIMILAR TO 'PEN-[0-9]+' ORDER BY id
SELECT id FROM orders WHERE id = ANY (ARRAY[1, 2]) AND status IN ('shipped', 'open') ORDER BY id
SELECT generate_series AS n FROM generate_series(1, 3)
SELECT d::date AS day FROM generate_series('2025-01-01'::date, '2025-01-03', interval '1 day') d
SELECT o.id, x.n FROM orders o CROSS JOIN LATERAL (SELECT count(*) AS n FROM order_items i WHERE i.order_id = o.id) x WHERE o.id < 4 ORDER BY o.id
SELECT DISTINCT ON (category) category, id FROM products ORDER BY category, price_cents DESC
SELECT status, count(*) AS n FROM orders GROUP BY ROLLUP (status) ORDER BY status NULLS LAST
SELECT category, grouping(category) AS g, sum(stock) AS s FROM products GROUP BY GROUPING SETS ((category), ()) ORDER BY g, category
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY price_cents) AS median, mode() WITHIN GROUP (ORDER BY category) AS most FROM products
SELECT lpad(id::text, 4, '0') AS padded, repeat('ab', 3) AS r, left(name, 3) AS l, split_part(sku, '-', 2) AS part FROM products WHERE id = 1
SELECT position('c' IN 'abc') AS p, substring('abcdef' FROM 2 FOR 3) AS s, overlay('abc' PLACING 'X' FROM 2) AS o, trim(both 'x' FROM 'xax') AS t
SELECT greatest(1, 2) AS g, least(1, 2) AS l, 2 ^ 3 AS p, |/ 16 AS r, 5 BETWEEN 1 AND 9 AS b
SELECT ARRAY[1, 2, 3] AS a, (ARRAY['x', 'y'])[2] AS y, ARRAY[1, 2] || 3 AS more, cardinality(ARRAY[1, 2]) AS n, ARRAY['a"b', NULL, 'c,d'] AS odd
SELECT unnest(ARRAY[1, 2]) AS n
SELECT $$a; 'b'$$ AS dollar, E'a\tb' AS tab, U&'\0041' AS uni, B'101' AS bits
SELECT now() > '2020-01-01' AS late, current_date > '2020-01-01' AS today, age('2025-03-01', '2025-01-01') AS age
SELECT timestamptz '2025-01-01 12:00+02' AT TIME ZONE 'Europe/Berlin' AS local
SELECT (timestamp '2025-01-01 10:00', interval '1 hour') OVERLAPS (timestamp '2025-01-01 10:30', interval '1 hour') AS both_busy
SELECT to_tsvector('english', note) @@ to_tsquery('english', 'doors') AS hit FROM orders WHERE note LIKE 'leave%' LIMIT 1
SELECT true AS yes, NULL::int AS nothing, 'NaN'::float8 AS nan, 1e3::float8 AS thousand, 12345678901234567890.5 AS big, '\x0a'::bytea AS bytes
SELECT ROW(1, 'a') AS r, (1, 2) < (1, 3) AS less, (id, status) = (1, 'shipped') AS same FROM orders WHERE id = 1
SELECT id FROM orders o WHERE o.ordered_on IS NOT DISTINCT FROM '2025-01-01'
SELECT id FROM orders ORDER BY id FETCH FIRST 2 ROWS ONLY
SELECT count(*) > 0 AS some FROM orders TABLESAMPLE BERNOULLI (100)
SELECT '[1,5)'::int4range @> 3 AS inside, upper('[1,5)'::int4range) AS u
SELECT "id" FROM U&"\006frders" WHERE id = 1
WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < 3) SEARCH DEPTH FIRST BY n SET o SELECT n FROM t ORDER BY o
WITH t AS MATERIALIZED (SELECT id FROM orders WHERE id < 3) SELECT sum(id) AS s FROM t
WITH ":relid" AS (SELECT 1 AS "} {RTE :relid 0") SELECT * FROM ":relid"
SELECT 'a' < 'b' COLLATE "C" AS c, md5('x') AS m, encode('ab'::bytea, 'hex') AS h
SELECT corr(quantity, unit_cents) IS NOT NULL AS c, stddev(quantity) > 0 AS s, bool_and(quantity > 0) AS ok FROM order_items
EXPLAIN (COSTS OFF) SELECT id FROM orders WHERE note = 'x'
EXPLAIN (COSTS OFF) VALUES (1)
SELECT id FROM orders JOIN order_items USING (id) WHERE id = 1
SELECT "Orders".n FROM (SELECT 1 AS n) "Orders"
SELECT (o).status, o.*::text AS whole FROM orders o WHERE id = 1
SELECT id FROM orders ORDER BY id USING > LIMIT 1
SELECT to_json('x'::text) AS t, to_json(1) AS n, quote_literal(1) AS q, 1 || 'x' AS c, to_jsonb(ARRAY[1, 2]) AS a
SELECT to_json(feels) AS f, json_agg(tags) AS t, feels || '!' AS w FROM moods GROUP BY id ORDER BY id
SELECT row_to_json(m) AS m FROM moods m ORDER BY id
SELECT to_jsonb(o) AS o FROM orders o WHERE id = 1
SELECT json_build_object('id', id, 'status', status) AS o FROM orders WHERE id = 1
SELECT id, s, list, mix FROM shades WHERE s = 'dark'
SELECT s::text AS s, list::text AS l, array_agg(s) AS a, max(s) AS m, count(DISTINCT s) AS n FROM shades GROUP BY 1, 2
SELECT to_json(id) AS id, name || 'x' AS x FROM tints
