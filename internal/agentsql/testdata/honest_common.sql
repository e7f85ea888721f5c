SELECT count(*) AS n FROM orders WHERE status = 'open'
SELECT count(*) AS n FROM orders WHERE status = 'open';
SELECT count(*) AS n FROM orders WHERE status = 'open' ; -- the open ones
select Count(*) As n From ORDERS
SELECT /* how many? */ count(*) AS n -- really
  FROM orders
SELECT '; DROP TABLE orders; --' AS text
SELECT 'it''s; fine' AS text, 'a -- b' AS dashes, '/* c */' AS stars
SELECT "id", "status" FROM "orders" WHERE "id" = 1
SELECT id AS "select", status AS "from" FROM orders WHERE id < 3 ORDER BY "select"
SELECT o.id, o.id, o.customer_id AS id FROM orders o WHERE o.id = 2
SELECT 'DELETE FROM orders' AS warning
SELECT id FROM orders WHERE note LIKE '%door%' ORDER BY id LIMIT 3
SELECT id FROM orders WHERE note IS NOT NULL AND NOT (note LIKE 'gift%') ORDER BY id DESC LIMIT 2 OFFSET 1
SELECT status, count(*) AS n FROM orders GROUP BY status ORDER BY status
SELECT status, count(*) AS n FROM orders GROUP BY status HAVING count(*) > 7 ORDER BY n DESC, status
SELECT DISTINCT category FROM products ORDER BY category
SELECT category, min(price_cents) AS low, max(price_cents) AS high FROM products GROUP BY category ORDER BY 1
SELECT sum(quantity * unit_cents) AS cents FROM order_items
SELECT o.id, sum(i.quantity * i.unit_cents) AS cents FROM orders o JOIN order_items i ON i.order_id = o.id WHERE o.id <= 3 GROUP BY o.id ORDER BY o.id
SELECT p.name, sum(i.quantity) AS sold FROM products p LEFT JOIN order_items i ON i.product_id = p.id GROUP BY p.name ORDER BY sold DESC, p.name LIMIT 3
SELECT cents FROM order_totals WHERE order_id = 1
SELECT o.status, sum(t.cents) AS cents FROM orders o JOIN order_totals t ON t.order_id = o.id GROUP BY o.status ORDER BY o.status
SELECT CASE WHEN price_cents < 2000 THEN 'cheap' WHEN price_cents < 5000 THEN 'fair' ELSE 'dear' END AS class, count(*) AS n FROM products GROUP BY 1 ORDER BY 1
SELECT coalesce(note, '-') AS note, nullif(status, 'shipped') AS rest FROM orders WHERE id IN (1, 4) ORDER BY id
SELECT CAST(price_cents AS TEXT) AS text, CAST('12' AS INTEGER) + 1 AS number FROM products WHERE id = 1
SELECT id FROM orders WHERE id IN (SELECT order_id FROM order_items WHERE quantity = 4) ORDER BY id LIMIT 4
SELECT id FROM products p WHERE EXISTS (SELECT 1 FROM order_items i WHERE i.product_id = p.id AND i.quantity > 3) ORDER BY id LIMIT 3
SELECT id FROM products WHERE price_cents = (SELECT max(price_cents) FROM products)
SELECT (SELECT count(*) FROM orders) AS orders, (SELECT count(*) FROM products) AS products
WITH open_orders AS (SELECT * FROM orders WHERE status = 'open') SELECT count(*) AS n, min(id) AS first FROM open_orders
WITH a AS (SELECT id FROM orders WHERE id < 4), b AS (SELECT id * 2 AS twice FROM a) SELECT sum(twice) AS s FROM b
WITH orders2(n) AS (SELECT count(*) FROM orders) SELECT n FROM orders2
WITH secrets AS (SELECT 1 AS token) SELECT token FROM secrets
WITH secrets AS (SELECT 1 AS token) SELECT count(*) AS n FROM secrets
WITH customers(x) AS (VALUES (1), (2)) SELECT sum(x) AS s FROM customers
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 10) SELECT sum(n) AS s FROM t
WITH RECURSIVE t(n, f) AS (SELECT 1, 1 UNION ALL SELECT n + 1, f * (n + 1) FROM t WHERE n < 6) SELECT n, f FROM t ORDER BY n DESC LIMIT 1
SELECT id FROM orders WHERE id < 3 UNION SELECT id FROM orders WHERE id BETWEEN 2 AND 4 ORDER BY id
SELECT id FROM orders WHERE id < 3 UNION ALL SELECT id FROM orders WHERE id < 2 ORDER BY id
SELECT id FROM orders WHERE id < 5 EXCEPT SELECT id FROM orders WHERE id > 2 ORDER BY id
SELECT id FROM orders WHERE id < 5 INTERSECT SELECT id FROM orders WHERE id > 2 ORDER BY id
VALUES (1, 'a'), (2, 'b')
SELECT column1 AS a FROM (VALUES (1), (2)) v ORDER BY 1
SELECT id, row_number() OVER (ORDER BY price_cents DESC) AS place FROM products ORDER BY place LIMIT 3
SELECT id, rank() OVER (PARTITION BY category ORDER BY price_cents) AS r FROM products WHERE category = 'office' ORDER BY id
SELECT id, lag(id) OVER (ORDER BY id) AS before, lead(id, 2) OVER (ORDER BY id) AS after FROM products WHERE id < 4 ORDER BY id
SELECT id, sum(price_cents) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS run FROM products WHERE id < 4 ORDER BY id
SELECT id, first_value(id) OVER w AS f, last_value(id) OVER w AS l FROM products WHERE id < 4 WINDOW w AS (ORDER BY id RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) ORDER BY id
SELECT count(*) FILTER (WHERE status = 'open') AS open, count(*) FILTER (WHERE status = 'paid') AS paid FROM orders
SELECT ntile(2) OVER (ORDER BY id) AS half, id FROM products WHERE id < 5 ORDER BY id
SELECT upper(name) AS u, lower(sku) AS l, length(name) AS n FROM products WHERE id = 1
SELECT substr(name, 1, 4) AS head, replace(name, 'mug', 'cup') AS cup, trim('  x ') AS t FROM products WHERE id = 2
SELECT name || ' (' || sku || ')' AS label FROM products WHERE id = 3
SELECT abs(-3) AS a, round(2.5) AS r, 7 % 3 AS m, 7 / 2 AS d
SELECT 1.5 + 1 AS x, 1 = 1 AS yes, NULL AS none
SELECT id FROM orders WHERE (status = 'open' OR status = 'paid') AND id > 50 ORDER BY id LIMIT 2
SELECT a.id, b.id FROM products a CROSS JOIN products b WHERE a.id < 3 AND b.id < 3 ORDER BY 1, 2
SELECT * FROM products WHERE id = 1
SELECT p.* FROM products p WHERE p.sku = 'PEN-01'
SELECT id FROM (SELECT id FROM products WHERE id = 1) x
SELECT avg(price_cents) AS mean FROM products WHERE category = 'travel'
SELECT id FROM orders WHERE ordered_on >= '2025-01-10' AND ordered_on < '2025-01-14' ORDER BY id
SELECT max(ordered_on) AS last FROM orders
SELECT count(DISTINCT customer_id) AS buyers FROM orders
