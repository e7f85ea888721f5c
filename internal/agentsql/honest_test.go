package agentsql_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// leastHonest is how many honest statements each engine is tried with.
const leastHonest = 60

func TestQuery_AnswersHonestStatements(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, e engine) {
		all := statements(t, "honest_common.sql", "honest_"+e.name+".sql")
		if len(all) < leastHonest {
			t.Fatalf("%d honest statements, want at least %d", len(all), leastHonest)
		}
		t.Logf("%d honest statements", len(all))
		var got bytes.Buffer
		for _, statement := range all {
			rows, err := e.query(t.Context(), statement)
			if err != nil {
				t.Errorf("refused: %s\n%v", statement, err)
				continue
			}
			if !json.Valid(rows.JSON) || rows.Truncated {
				t.Errorf("%s\nvalid %t, truncated %t", statement, json.Valid(rows.JSON), rows.Truncated)
			}
			got.WriteString(statement + "\n\t" + string(rows.JSON) + "\n")
		}
		golden := filepath.Join("testdata", "honest_"+e.name+".golden")
		if *update {
			if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("answers differ (-want +got):\n%s", diff)
		}
	})
}
