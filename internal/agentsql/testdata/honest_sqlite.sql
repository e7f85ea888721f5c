SELECT group_concat(sku, '; ') AS skus FROM (SELECT sku FROM products WHERE category = 'office' ORDER BY id)
SELECT date('2025-01-31', '+1 month') AS d, strftime('%Y-%m', '2025-03-04') AS m, julianday('2025-01-02') - julianday('2025-01-01') AS days
SELECT strftime('%Y-%m', ordered_on) AS month, count(*) AS n FROM orders GROUP BY month ORDER BY month
SELECT json_extract('{"a":[1,2]}', '$.a[1]') AS x, '{"b":"c"}' ->> 'b' AS y, '{"b":"c"}' -> 'b' AS z
SELECT value FROM json_each('[1,2,3]') WHERE value > 1
SELECT fullkey, atom FROM json_tree('{"a":{"b":1}}') WHERE atom IS NOT NULL
SELECT json_group_array(id) AS ids FROM orders WHERE id < 4
SELECT json_object('id', id, 'sku', sku) AS o FROM products WHERE id = 1
SELECT printf('%05.2f', price_cents / 100.0) AS price FROM products WHERE id = 1
SELECT id FROM [orders] WHERE `id` = 1
SELECT id FROM main.orders WHERE main.orders.id = 1
SELECT iif(id > 1, 'b', 'a') AS x FROM orders WHERE id < 3 ORDER BY id
SELECT instr('abc', 'c') AS at, hex('AB') AS h, quote('it''s') AS q, x'4142' AS blob, typeof(1.0) AS t
SELECT id FROM products WHERE sku GLOB 'MUG-*' ORDER BY id
SELECT id FROM products WHERE sku LIKE 'mug\_%' ESCAPE '\' ORDER BY id
EXPLAIN QUERY PLAN SELECT id FROM orders WHERE id = 1
SELECT total(price_cents) AS t, string_agg(category, ',') AS s FROM products WHERE id < 3
SELECT id FROM orders WHERE (id, status) = (1, 'shipped')
SELECT rowid FROM orders WHERE rowid = 5
SELECT 1 AS a WHERE 1 IS NOT DISTINCT FROM 1
SELECT sqrt(16) AS r, pow(2, 8) AS p, ceil(1.2) AS c, max(1, 2) AS m
