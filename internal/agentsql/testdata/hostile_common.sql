#### other tables
SELECT * FROM secrets
SELECT token FROM secrets
SELECT count(*) FROM secrets
SELECT 1 FROM secrets
SELECT EXISTS (SELECT 1 FROM secrets)
select * from SECRETS
SeLeCt * FrOm SeCrEtS
SELECT * FROM "secrets"
SELECT * FROM/**/secrets
SELECT * FROM secrets -- orders
SELECT * FROM /* orders */ secrets
SELECT * FROM secrets AS orders
SELECT orders.token FROM secrets orders
SELECT (SELECT token FROM secrets LIMIT 1)
SELECT id FROM orders WHERE note = (SELECT token FROM secrets LIMIT 1)
SELECT id FROM orders WHERE id IN (SELECT id FROM secrets)
SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM secrets s WHERE s.id = orders.id)
SELECT id FROM orders ORDER BY (SELECT token FROM secrets LIMIT 1)
SELECT id FROM orders GROUP BY id, (SELECT token FROM secrets LIMIT 1)
SELECT count(*) FROM orders HAVING (SELECT count(*) FROM secrets) > 0
SELECT id FROM orders LIMIT (SELECT count(*) FROM secrets)
SELECT id FROM orders LIMIT 1 OFFSET (SELECT count(*) FROM secrets)
SELECT CASE WHEN (SELECT count(*) FROM secrets) > 0 THEN 1 ELSE 2 END
SELECT coalesce((SELECT token FROM secrets LIMIT 1), 'x')
SELECT id FROM orders JOIN secrets USING (id)
SELECT orders.id FROM orders LEFT JOIN secrets ON secrets.id = orders.id
SELECT orders.id FROM orders, secrets
SELECT orders.id FROM orders CROSS JOIN secrets
SELECT * FROM orders NATURAL JOIN secrets
SELECT o.id FROM orders o JOIN (SELECT id FROM secrets) s ON s.id = o.id
SELECT id FROM orders UNION SELECT id FROM secrets
SELECT id FROM orders UNION ALL SELECT id FROM secrets
SELECT id FROM orders EXCEPT SELECT id FROM secrets
SELECT id FROM orders INTERSECT SELECT id FROM secrets
WITH orders AS (SELECT * FROM secrets) SELECT * FROM orders
WITH a AS (SELECT * FROM secrets), b AS (SELECT * FROM a) SELECT * FROM b
WITH secrets AS (SELECT * FROM secrets) SELECT * FROM secrets
WITH a AS (WITH b AS (SELECT token FROM secrets) SELECT * FROM b) SELECT * FROM a
SELECT (WITH secrets AS (SELECT 1 AS x) SELECT x FROM secrets), count(*) FROM secrets
SELECT * FROM (WITH secrets AS (SELECT 1) SELECT 1) x, secrets
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t, secrets WHERE n < 3) SELECT * FROM t
WITH RECURSIVE secrets2 AS (SELECT id, token FROM secrets UNION SELECT id, token FROM secrets2) SELECT * FROM secrets2
SELECT sum(id) OVER (PARTITION BY (SELECT token FROM secrets LIMIT 1)) FROM orders
SELECT sum(id) OVER (ORDER BY (SELECT token FROM secrets LIMIT 1)) FROM orders
SELECT sum(id) OVER w FROM orders WINDOW w AS (ORDER BY (SELECT token FROM secrets LIMIT 1))
SELECT sum(id) FILTER (WHERE id < (SELECT count(*) FROM secrets)) FROM orders
VALUES ((SELECT token FROM secrets LIMIT 1))
SELECT * FROM (VALUES ((SELECT token FROM secrets LIMIT 1))) v
EXPLAIN SELECT * FROM secrets
EXPLAIN SELECT * FROM orders WHERE id IN (SELECT id FROM secrets)
SELECT * FROM secret_view
SELECT count(*) FROM secret_view
SELECT * FROM orders o WHERE (SELECT count(*) FROM secret_view) > o.id
SELECT * FROM customers
SELECT email FROM customers WHERE id = 1
SELECT min(email) FROM customers
SELECT orders.* FROM orders JOIN customers ON customers.id = orders.customer_id
SELECT secrets FROM secrets
SELECT secrets.* FROM secrets
((SELECT * FROM secrets))
(SELECT * FROM orders) UNION ALL (SELECT 1, 2, token, 'a', 'b' FROM secrets)
SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM secrets) a) b) c
#### several statements
SELECT 1; SELECT * FROM secrets
SELECT 1;; 
SELECT 1; --
; SELECT 1
SELECT 1; DELETE FROM orders
SELECT ';'; DELETE FROM orders
SELECT 1 /* ; */ ; DROP TABLE orders
#### writes and utilities
DELETE FROM orders
UPDATE orders SET note = 'x'
INSERT INTO orders VALUES (99, 1, 'open', '2025-01-01', NULL)
INSERT INTO orders SELECT * FROM orders
DROP TABLE orders
CREATE TABLE x (a int)
CREATE TABLE x AS SELECT * FROM secrets
CREATE VIEW x AS SELECT * FROM secrets
CREATE TEMP TABLE x AS SELECT * FROM orders
ALTER TABLE orders ADD COLUMN x int
ALTER TABLE orders RENAME TO secrets2
BEGIN
COMMIT
ROLLBACK
SAVEPOINT a
REINDEX orders
VACUUM
ANALYZE
#### text and syntax
/* hi */ DELETE FROM orders
-- SELECT
DELETE FROM orders
#### writes inside a select
WITH x AS (SELECT 1) DELETE FROM orders
WITH x AS (SELECT 1) UPDATE orders SET note = 'x'
WITH x AS (SELECT 1) INSERT INTO orders SELECT 99, 1, 'open', '2025-01-01', NULL
#### writes and utilities
EXPLAIN DELETE FROM orders
EXPLAIN UPDATE orders SET note = 'x'
#### text and syntax
SELECT 'unterminated
SELECT "unterminated
SELECT (1
SELECT 1)
SELECT 1) AS x, (SELECT token FROM secrets
SELECT $1
