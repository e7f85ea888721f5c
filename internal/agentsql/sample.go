package agentsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite" // the driver SeedSQLite writes with
)

// SampleSchema is the Postgres schema of the sample shop.
const SampleSchema = "hob_demo"

// SampleOpenOrders is the number of orders of the sample with status 'open'.
const SampleOpenOrders = 7

// SampleTables are the sample's tables, the referenced before the referring.
func SampleTables() []string { return []string{"customers", "products", "orders", "order_items"} }

// SeedSQLite makes path a project database with a small shop, owner-only
// (0600). A file that exists is kept untouched, whatever is in it. The file
// appears complete or not at all.
func SeedSQLite(path string) error {
	switch _, err := os.Lstat(path); {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("sample database: %w", err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".sample-")
	if err != nil {
		return fmt.Errorf("sample database: %w", err)
	}
	// A draft that stays behind does no harm.
	defer func() { _ = os.RemoveAll(dir) }()
	draft := filepath.Join(dir, "project.db")
	if err := writeSample(draft); err != nil {
		return fmt.Errorf("sample database: %w", err)
	}
	// Link refuses to replace a file made meanwhile, which Rename would.
	if err := os.Link(draft, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("sample database: %w", err)
	}
	return nil
}

func writeSample(path string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	u := url.URL{Scheme: "file", OmitHost: true, Path: path}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	// A few kilobytes in a local file: over before anybody would cancel it.
	_, err = db.ExecContext(context.Background(), "BEGIN;"+sampleSQL("", "INTEGER PRIMARY KEY", "TEXT")+"COMMIT;")
	return err
}

// SeedPostgres makes the same shop in schema hob_demo, in one transaction. A
// schema of that name that exists is kept untouched.
func SeedPostgres(ctx context.Context, databaseURL string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return fmt.Errorf("sample schema: connect: %w", err)
	}
	defer drop(conn)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Two replicas may start at once.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", "hob sample"); err != nil {
			return err
		}
		var there bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", SampleSchema).Scan(&there); err != nil || there {
			return err
		}
		text := "CREATE SCHEMA " + SampleSchema + ";" +
			sampleSQL(SampleSchema+".", "integer PRIMARY KEY", "date")
		_, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if err != nil {
		return fmt.Errorf("sample schema: %w", err)
	}
	return nil
}

// sampleSQL is the shop as one script: the same rows on both engines, with
// money in cents and dates in ISO form.
func sampleSQL(prefix, key, date string) string {
	var b strings.Builder
	ddl := strings.NewReplacer("{p}", prefix, "{key}", key, "{date}", date)
	b.WriteString(ddl.Replace(`
CREATE TABLE {p}customers (id {key}, name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, city TEXT NOT NULL, country TEXT NOT NULL, created_on {date} NOT NULL);
CREATE TABLE {p}products (id {key}, sku TEXT NOT NULL UNIQUE, name TEXT NOT NULL, category TEXT NOT NULL, price_cents INTEGER NOT NULL CHECK (price_cents > 0), stock INTEGER NOT NULL DEFAULT 0);
CREATE TABLE {p}orders (id {key}, customer_id INTEGER NOT NULL REFERENCES {p}customers (id), status TEXT NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'paid', 'shipped', 'cancelled')), ordered_on {date} NOT NULL, note TEXT);
CREATE TABLE {p}order_items (id {key}, order_id INTEGER NOT NULL REFERENCES {p}orders (id), product_id INTEGER NOT NULL REFERENCES {p}products (id), quantity INTEGER NOT NULL CHECK (quantity > 0), unit_cents INTEGER NOT NULL);
CREATE INDEX orders_by_customer ON {p}orders (customer_id);
CREATE INDEX order_items_by_order ON {p}order_items (order_id);
`))
	for i, c := range sampleCustomers() {
		name, place, _ := strings.Cut(c, "|")
		city, country, _ := strings.Cut(place, ",")
		email := strings.ToLower(strings.ReplaceAll(name, " ", ".")) + "@example.com"
		fmt.Fprintf(&b, "INSERT INTO %scustomers VALUES (%d, '%s', '%s', '%s', '%s', '%s');\n",
			prefix, i+1, name, email, city, country, sampleDay(-120+5*i))
	}
	products := sampleProducts()
	for i, p := range products {
		fmt.Fprintf(&b, "INSERT INTO %sproducts VALUES (%d, '%s', '%s', '%s', %d, %d);\n",
			prefix, i+1, p.sku, p.name, p.category, p.cents, p.stock)
	}
	item := 0
	for i := range sampleOrders {
		fmt.Fprintf(&b, "INSERT INTO %sorders VALUES (%d, %d, '%s', '%s', %s);\n",
			prefix, i+1, (i*7)%len(sampleCustomers())+1, sampleStatus(i), sampleDay(i*3/2), sampleNote(i))
		for j := range i%3 + 1 {
			item++
			p := (i*5 + j*4) % len(products)
			fmt.Fprintf(&b, "INSERT INTO %sorder_items VALUES (%d, %d, %d, %d, %d);\n",
				prefix, item, i+1, p+1, (i+j)%4+1, products[p].cents)
		}
	}
	return b.String()
}

const sampleOrders = 60

// sampleStatus leaves exactly SampleOpenOrders orders open, the newest ones.
func sampleStatus(order int) string {
	switch {
	case order >= sampleOrders-SampleOpenOrders:
		return "open"
	case order%11 == 4:
		return "cancelled"
	case order >= sampleOrders-2*SampleOpenOrders:
		return "paid"
	}
	return "shipped"
}

func sampleNote(order int) string {
	switch order % 10 {
	case 3:
		return "'leave at the door'"
	case 8:
		return "'gift wrap; no invoice in the box'"
	}
	return "NULL"
}

// sampleDay counts from the first day of the sample's year.
func sampleDay(n int) string {
	return time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, n).Format(time.DateOnly)
}

func sampleCustomers() []string {
	return []string{
		"Ada Brandt|Hamburg,DE", "Bruno Keller|Zurich,CH", "Chiara Rossi|Milan,IT", "Daan Visser|Utrecht,NL",
		"Elif Kaya|Berlin,DE", "Finn Larsen|Aarhus,DK", "Greta Holm|Malmo,SE", "Hugo Martin|Lyon,FR",
		"Ines Duarte|Porto,PT", "Jan Novak|Prague,CZ", "Klara Weiss|Vienna,AT", "Liam Walsh|Cork,IE",
		"Mara Ilic|Zagreb,HR", "Noah Peeters|Ghent,BE", "Olga Petrova|Sofia,BG", "Pablo Ruiz|Sevilla,ES",
		"Quinn Murphy|Dublin,IE", "Rosa Conti|Turin,IT", "Sven Eriksson|Uppsala,SE", "Tilda Krause|Leipzig,DE",
	}
}

type sampleProduct struct {
	sku, name, category string
	cents, stock        int
}

func sampleProducts() []sampleProduct {
	return []sampleProduct{
		{"MUG-01", "Stoneware mug", "kitchen", 1290, 140},
		{"MUG-02", "Enamel mug", "kitchen", 990, 85},
		{"KET-01", "Pour-over kettle", "kitchen", 5490, 22},
		{"GRI-01", "Hand grinder", "kitchen", 7900, 15},
		{"LMP-01", "Desk lamp", "office", 4450, 31},
		{"NBK-01", "Dotted notebook", "office", 890, 300},
		{"PEN-01", "Fountain pen", "office", 2990, 54},
		{"BAG-01", "Canvas bag", "travel", 3900, 47},
		{"BTL-01", "Steel bottle", "travel", 2490, 120},
		{"UMB-01", "Folding umbrella", "travel", 1990, 0},
		{"BLK-01", "Wool blanket", "home", 6900, 18},
		{"CND-01", "Beeswax candle", "home", 1450, 75},
	}
}
