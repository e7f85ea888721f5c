package agentsql

import (
	"errors"
	"strconv"
	"strings"
)

// treeTags are the known nodes of an analysed SELECT, by their names in all
// supported versions. Whatever is not here is refused, among it: XML, JSON_TABLE
// and XMLTABLE, sequences, coercion to a domain (its checks are functions),
// CURRENT OF, DEFAULT and MERGE.
var treeTags = wordSet(`QUERY RANGETBLENTRY RTE RTEPERMISSIONINFO ALIAS RANGETBLREF FROMEXPR JOINEXPR TARGETENTRY
	SORTGROUPCLAUSE GROUPINGSET WINDOWCLAUSE SETOPERATIONSTMT COMMONTABLEEXPR CTESEARCHCLAUSE CTECYCLECLAUSE
	RANGETBLFUNCTION RTEFUNCTION TABLESAMPLECLAUSE
	VAR CONST PARAM AGGREF GROUPINGFUNC GROUPING WINDOWFUNC SUBSCRIPTINGREF FUNCEXPR NAMEDARGEXPR OPEXPR DISTINCTEXPR
	NULLIFEXPR SCALARARRAYOPEXPR BOOLEXPR SUBLINK FIELDSELECT RELABELTYPE COERCEVIAIO ARRAYCOERCEEXPR
	CONVERTROWTYPEEXPR COLLATEEXPR COLLATE CASEEXPR CASE CASEWHEN WHEN CASETESTEXPR ARRAYEXPR ARRAY ROWEXPR ROW
	ROWCOMPAREEXPR ROWCOMPARE COALESCEEXPR COALESCE MINMAXEXPR MINMAX SQLVALUEFUNCTION NULLTEST BOOLEANTEST
	JSONCONSTRUCTOREXPR JSONVALUEEXPR JSONFORMAT JSONRETURNING JSONISPREDICATE`)

// mustBe are fields that a plain SELECT has in one state only.
var mustBe = map[string]map[string]string{
	"QUERY": {
		":commandType": "1", ":utilityStmt": null, ":resultRelation": "0", ":hasModifyingCTE": "false",
		":hasForUpdate": "false", ":onConflict": null, ":returningList": null, ":rowMarks": null,
		":mergeActionList": null, ":withCheckOptions": null,
	},
	"RANGETBLENTRY": {":securityQuals": null},
	"RTE":           {":securityQuals": null},
}

// Fields that hold oids of functions called by name, of operators' functions,
// and of operators. A zero means none.
var (
	functionFields = wordSet(`:funcid :aggfnoid :winfnoid :startInRangeFunc :endInRangeFunc`)
	behindFields   = wordSet(`:opfuncid :hashfuncid :negfuncid`)
	operatorFields = wordSet(`:opno :eqop :sortop :cycle_mark_neop`)
	// notTypes end like a type's field and hold something else.
	notTypes = wordSet(`:jointype :commandType :subLinkType :rctype :nulltesttype :booltesttype :functype
		:coerceformat :aggtranstype`)
)

// Messages of the walk. They name nothing.
var (
	errRelation  = errors.New("a table that is not granted")
	errSystemCol = refuse("System columns are not available")
	errFunction  = refuse("The query calls a function that is not available")
	errOperator  = refuse("The query uses an operator that is not available")
	errType      = refuse("The query uses a type that is not available")
	errShape     = refuse(msgOnlySelect)
	errSample    = refuse("TABLESAMPLE takes only BERNOULLI and SYSTEM here")
	errValueFunc = refuse("Only the date and time keywords (CURRENT_DATE, …) are available")
	errUnknown   = refuse("The query uses a construct that is not available")
	errCast      = refuse("The query makes text or JSON of a type that has a cast of its own; select the columns as they are")
	errRepeat    = refuse("The length given to repeat, lpad and rpad must be a written number of at most %d", maxRepeat)
)

// walk judges an analysed statement.
type walk struct {
	allow allowList
	// tables are the oids the grant covers, with view for the checking view
	// itself, which older servers list in its own tree.
	tables map[uint32]bool
	view   uint32
	// enums may be used as built-in types are; columns only as they are read.
	enums, columns map[uint32]bool
	// cast are the types from which a cast by a function of the database's own leads, or that contain one.
	cast map[uint32]bool
	seen *seen
}

// seen is what occurs anywhere in a statement. Where both do, a function of a user's might be run by one that is allowed;
// which value goes where is not followed, since rows of sub-selects carry their columns unseen.
type seen struct{ casts, casting bool }

// statement judges the whole of an analysed statement.
func (w walk) statement(v treeValue) error {
	w.seen = &seen{}
	if err := w.value(v); err != nil {
		return err
	}
	if w.seen.casts && w.seen.casting {
		return errCast
	}
	return nil
}

// value visits everything below v.
func (w walk) value(v treeValue) error {
	for _, item := range v.list {
		if err := w.value(item); err != nil {
			return err
		}
	}
	if v.node == nil {
		return nil
	}
	return w.node(v.node)
}

func (w walk) node(n *treeNode) error {
	if !treeTags[n.tag] {
		return errUnknown
	}
	for key, want := range mustBe[n.tag] {
		if got, ok := n.get(key); ok && (got.atom != want || got.node != nil || got.list != nil) {
			return errShape
		}
	}
	if err := w.special(n); err != nil {
		return err
	}
	for _, f := range n.fields {
		if err := w.field(n, f); err != nil {
			return err
		}
		if err := w.value(f.value); err != nil {
			return err
		}
	}
	return nil
}

// special judges what concerns one kind of node.
func (w walk) special(n *treeNode) error {
	switch n.tag {
	case "QUERY":
		if v, ok := n.get(":commandType"); !ok || v.atom != "1" {
			return errShape
		}
	case "RANGETBLENTRY", "RTE":
		return w.rangeEntry(n)
	case "VAR":
		if v, _ := n.get(":varattno"); strings.HasPrefix(v.atom, "-") {
			return errSystemCol
		}
	case "PARAM":
		const ofSublink = "2" // the column of IN (SELECT …)
		if v, _ := n.get(":paramkind"); v.atom != ofSublink {
			return errUnknown
		}
	case "SQLVALUEFUNCTION":
		const lastTime = 8 // LOCALTIMESTAMP(n); beyond it come CURRENT_ROLE and its like
		v, _ := n.get(":op")
		if op, err := strconv.Atoi(v.atom); err != nil || op < 0 || op > lastTime {
			return errValueFunc
		}
	case "TABLESAMPLECLAUSE":
		v, _ := n.get(":tsmhandler")
		if oid, err := v.oid(); err != nil || !w.allow.sampling[oid] {
			return errSample
		}
	case "FUNCEXPR":
		return w.bounded(n)
	case "JSONCONSTRUCTOREXPR":
		w.seen.casting = true
	}
	return nil
}

// rangeEntry judges an entry of a FROM list: tables, sub-selects, joins,
// functions, VALUES and table expressions; nothing else.
func (w walk) rangeEntry(n *treeNode) error {
	kind, _ := n.get(":rtekind")
	switch kind.atom {
	case "0": // a table
		if lock, ok := n.get(":rellockmode"); ok && lock.atom != "1" {
			return errShape
		}
	case "1", "2", "3", "5", "6", "8", "9":
	default:
		return errUnknown
	}
	v, ok := n.get(":relid")
	if !ok {
		if kind.atom == "0" {
			return errUnknown
		}
		return nil
	}
	return w.relation(v)
}

func (w walk) relation(v treeValue) error {
	oid, err := v.oid()
	if err != nil {
		return errUnknown
	}
	if oid != 0 && oid != w.view && !w.tables[oid] {
		return errRelation
	}
	return nil
}

// bounded holds the second argument of repeat and its like to a written number.
func (w walk) bounded(n *treeNode) error {
	v, _ := n.get(":funcid")
	oid, err := v.oid()
	if err != nil {
		return errUnknown
	}
	if !w.allow.bounded[oid] {
		return nil
	}
	args, _ := n.get(":args")
	if len(args.list) < 2 || args.list[1].node == nil || args.list[1].node.tag != "CONST" {
		return errRepeat
	}
	value, _ := args.list[1].node.get(":constvalue")
	number := int64(0)
	const intBytes = 4
	for i := min(len(value.datum), intBytes) - 1; i >= 0; i-- {
		b, err := strconv.Atoi(value.datum[i])
		if err != nil {
			return errRepeat
		}
		number = number<<8 | int64(byte(b))
	}
	if number > maxRepeat && int32(number) > 0 {
		return errRepeat
	}
	return nil
}

// field judges the oids in one field.
func (w walk) field(n *treeNode, f treeField) error {
	switch {
	case functionFields[f.key]:
		w.note(f.value)
		return one(f.value, w.allow.functions, errFunction)
	case behindFields[f.key]:
		return one(f.value, w.allow.behind, errOperator)
	case operatorFields[f.key]:
		w.note(f.value)
		return one(f.value, w.allow.operators, errOperator)
	case f.key == ":opnos":
		return all(f.value, w.allow.operators, errOperator)
	case f.key == ":relid":
		return w.relation(f.value)
	case f.key == ":tsmhandler" && n.tag != "TABLESAMPLECLAUSE":
		return errUnknown
	case notTypes[f.key]:
		return nil
	}
	switch key := strings.ToLower(f.key); {
	case key == ":vartype":
		return w.typeOf(f.value, true)
	case strings.HasSuffix(key, "type"), strings.HasSuffix(key, "typeid"), key == ":typid":
		return w.typeOf(f.value, false)
	case strings.HasSuffix(key, "types"):
		oids, err := f.value.oids()
		if err != nil {
			return errUnknown
		}
		// Columns of sub-selects and table expressions only pass values on.
		passing := key == ":coltypes" || key == ":ctecoltypes"
		for _, oid := range oids {
			if !w.mayType(oid, passing) {
				return errType
			}
		}
	}
	return nil
}

func (w walk) typeOf(v treeValue, passing bool) error {
	oid, err := v.oid()
	if err != nil {
		return errUnknown
	}
	if !w.mayType(oid, passing) {
		return errType
	}
	return nil
}

// note remembers a function or operator that may look for casts.
func (w walk) note(v treeValue) {
	if oid, err := v.oid(); err == nil && w.allow.casting[oid] {
		w.seen.casting = true
	}
}

func (w walk) mayType(oid uint32, passing bool) bool {
	if w.cast[oid] {
		w.seen.casts = true
	}
	return oid == 0 || w.allow.types[oid] || w.enums[oid] || passing && w.columns[oid]
}

func one(v treeValue, allowed map[uint32]bool, refusal error) error {
	oid, err := v.oid()
	if err != nil {
		return errUnknown
	}
	if oid != 0 && !allowed[oid] {
		return refusal
	}
	return nil
}

func all(v treeValue, allowed map[uint32]bool, refusal error) error {
	oids, err := v.oids()
	if err != nil {
		return errUnknown
	}
	for _, oid := range oids {
		if !allowed[oid] {
			return refusal
		}
	}
	return nil
}
