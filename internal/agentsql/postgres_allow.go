package agentsql

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// The written lists of what a statement on Postgres may use. They name objects
// of pg_catalog and are resolved to oids when the database is opened; only what
// came with the server (oid below 16384) counts, so nothing an installed
// extension or a user put there, or in front of it, can pass for a built-in.

// postgresTypes are types whose input and output have no effect and tell
// nothing of the server. Missing on purpose: oid, the reg* types (they turn
// names into objects and back), name, xml, cid and its like.
var postgresTypes = wordSet(`bool int2 int4 int8 numeric float4 float8 money text varchar bpchar char bytea
	date time timetz timestamp timestamptz interval uuid json jsonb jsonpath inet cidr macaddr macaddr8 bit varbit
	point line lseg box path polygon circle tsvector tsquery regconfig record unknown
	int4range int8range numrange tsrange tstzrange daterange
	int4multirange int8multirange nummultirange tsmultirange tstzmultirange datemultirange`)

// postgresPolymorphic are the pseudo-types in the signatures of generic
// functions; a value never has them.
var postgresPolymorphic = wordSet(`any anyelement anyarray anynonarray anyenum anyrange anymultirange
	anycompatible anycompatiblearray anycompatiblenonarray anycompatiblerange anycompatiblemultirange`)

// postgresFunctions have no side effect and read nothing but their arguments,
// the time of day, or randomness. Casts are functions named after their type.
var postgresFunctions = wordSet(`
	bool int2 int4 int8 numeric float4 float8 money text varchar bpchar char bytea date time timetz timestamp timestamptz
	interval json jsonb inet cidr bit varbit tsvector tsquery point box circle polygon lseg path

	ascii bit_length btrim char_length character_length chr concat concat_ws convert_from convert_to decode encode format
	initcap left length like_escape lower lpad ltrim md5 normalize is_normalized octet_length overlay position
	quote_ident quote_literal quote_nullable regexp_count regexp_instr regexp_like regexp_match regexp_matches
	regexp_replace regexp_split_to_array regexp_split_to_table regexp_substr repeat replace reverse right rpad rtrim
	sha224 sha256 sha384 sha512 similar_escape similar_to_escape split_part starts_with string_to_array string_to_table
	strpos substr substring to_hex to_bin to_oct translate unistr upper bit_count get_bit get_byte

	abs acos acosd acosh asin asind asinh atan atan2 atan2d atand atanh cbrt ceil ceiling cos cosd cosh cot cotd
	degrees div erf erfc exp factorial floor gcd lcm ln log log10 min_scale mod pi pow power radians random round
	scale sign sin sind sinh sqrt tan tand tanh trim_scale trunc width_bucket

	age clock_timestamp date_add date_bin date_part date_subtract date_trunc extract isfinite justify_days justify_hours
	justify_interval make_date make_interval make_time make_timestamp make_timestamptz now overlaps statement_timestamp
	timezone to_char to_date to_number to_timestamp transaction_timestamp

	array_agg avg bit_and bit_or bit_xor bool_and bool_or corr count covar_pop covar_samp every json_agg json_object_agg
	jsonb_agg jsonb_object_agg max min mode percentile_cont percentile_disc range_agg range_intersect_agg regr_avgx
	regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy stddev stddev_pop stddev_samp
	string_agg sum var_pop var_samp variance any_value
	json_agg_strict jsonb_agg_strict json_object_agg_strict jsonb_object_agg_strict json_object_agg_unique
	jsonb_object_agg_unique json_object_agg_unique_strict jsonb_object_agg_unique_strict

	cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number in_range

	array_append array_cat array_dims array_length array_lower array_ndims array_position array_positions
	array_prepend array_remove array_replace array_to_json array_to_string array_upper cardinality generate_series
	generate_subscripts trim_array unnest array_sample array_shuffle array_reverse array_sort

	json_array_elements json_array_elements_text json_array_length json_build_array json_build_object json_each
	json_each_text json_extract_path json_extract_path_text json_object json_object_keys json_strip_nulls json_to_record
	json_to_recordset json_typeof row_to_json to_json
	jsonb_array_elements jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each
	jsonb_each_text jsonb_extract_path jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_keys
	jsonb_path_exists jsonb_path_exists_tz jsonb_path_match jsonb_path_match_tz jsonb_path_query jsonb_path_query_array
	jsonb_path_query_array_tz jsonb_path_query_first jsonb_path_query_first_tz jsonb_path_query_tz jsonb_pretty jsonb_set
	jsonb_set_lax jsonb_strip_nulls jsonb_to_record jsonb_to_recordset jsonb_typeof to_jsonb

	phraseto_tsquery plainto_tsquery setweight strip to_tsquery to_tsvector ts_headline ts_rank ts_rank_cd
	websearch_to_tsquery numnode querytree ts_delete tsvector_to_array array_to_tsvector

	isempty lower_inc lower_inf upper_inc upper_inf range_merge int4range int8range numrange tsrange tstzrange daterange
	multirange int4multirange int8multirange nummultirange tsmultirange tstzmultirange datemultirange

	host masklen netmask network broadcast abbrev family hostmask inet_same_family inet_merge set_masklen macaddr8_set7bit
	area center diagonal diameter height isclosed isopen npoints pclose popen radius slope width
	enum_first enum_last enum_range gen_random_uuid num_nonnulls num_nulls uuid_extract_timestamp uuid_extract_version
	hashtext crc32 crc32c`)

// castFree are the functions of any type that take a value as it is, or its text by its type's own output. All others of
// any type may look for a cast of the value's type, which can be a function of a user's.
var castFree = wordSet(`
	any_value array_agg count max min mode percentile_disc concat concat_ws format num_nonnulls num_nulls
	cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number in_range
	array_append array_cat array_dims array_length array_lower array_ndims array_position array_positions
	array_prepend array_remove array_replace array_to_string array_upper cardinality
	generate_subscripts trim_array unnest array_sample array_shuffle array_reverse array_sort
	isempty lower lower_inc lower_inf upper upper_inc upper_inf range_merge range_agg range_intersect_agg multirange
	enum_first enum_last enum_range width_bucket`)

// boundedFunctions make text of any length from nothing; their second argument
// must be a written number of at most maxRepeat.
var boundedFunctions = wordSet(`repeat lpad rpad`)

// maxRepeat is the largest second argument of a bounded function.
const maxRepeat = 10_000

// postgresOperators are the operators' names. With the types of their operands
// restricted to postgresTypes none has an effect.
var postgresOperators = wordSet(`+ - * / % ^ |/ ||/ @ & | # ~ << >> = <> < <= > >= || ~~ !~~ ~~* !~~* !~ ~* !~*
	-> ->> #> #>> @> <@ ? ?| ?& #- @? @@ @@@ && -|- &< &> <<| |>> &<| |&> <-> <<= >>= !! ^@
	|= ## @-@ @@ ?# ?- ?-| ?|| ~= <#> *= *<> *< *> *<= *>=`)

// postgresSampling are the sampling methods of TABLESAMPLE.
var postgresSampling = wordSet(`bernoulli system`)

// postgresTypeWords are further spellings of types, for the wording of
// refusals.
var postgresTypeWords = wordSet(`integer int bigint smallint decimal double real float boolean character timestamp time
	national dec precision setof array`)

// allowList is the lists as oids of one server.
type allowList struct {
	types     map[uint32]bool
	functions map[uint32]bool
	bounded   map[uint32]bool
	operators map[uint32]bool
	behind    map[uint32]bool // the operators' functions, not to be called by name
	sampling  map[uint32]bool
	casting   map[uint32]bool // functions and operators that may use a cast of any type

	words map[string]bool // types' names as they are written
}

// loadAllowList resolves the written lists on a server.
func loadAllowList(ctx context.Context, conn *pgx.Conn) (allowList, error) {
	a := allowList{words: map[string]bool{}}
	maps.Copy(a.words, postgresTypes)
	maps.Copy(a.words, postgresTypeWords)
	var err error
	load := func(sql string, args ...any) map[uint32]bool {
		if err != nil {
			return nil
		}
		var oids []uint32
		rows, queryErr := conn.Query(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
		if queryErr == nil {
			oids, queryErr = pgx.CollectRows(rows, pgx.RowTo[uint32])
		}
		err = queryErr
		set := make(map[uint32]bool, len(oids))
		for _, oid := range oids {
			set[oid] = true
		}
		return set
	}
	const builtin = ` AND oid < 16384 `
	a.types = load(`SELECT unnest(ARRAY[oid, typarray]) FROM pg_catalog.pg_type
		WHERE typnamespace = 'pg_catalog'::regnamespace AND typname = ANY($1)`+builtin, names(postgresTypes))
	delete(a.types, 0)
	signature := load(`SELECT oid FROM pg_catalog.pg_type WHERE typnamespace = 'pg_catalog'::regnamespace
		AND (typname = ANY($1) OR oid = ANY($2))`+builtin, names(postgresPolymorphic), slices.Collect(maps.Keys(a.types)))
	operands := slices.Collect(maps.Keys(signature))
	const function = `SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
		AND proname = ANY($1) AND NOT prosecdef AND prorettype = ANY($2) AND proargtypes::oid[] <@ $2::oid[]` + builtin
	a.functions = load(function, names(postgresFunctions), operands)
	a.bounded = load(function, names(boundedFunctions), operands)
	a.operators = load(`SELECT oid FROM pg_catalog.pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace
		AND oprname = ANY($1) AND (oprleft = 0 OR oprleft = ANY($2)) AND oprright = ANY($2) AND oprresult = ANY($2)`+builtin,
		names(postgresOperators), operands)
	a.behind = load(`SELECT DISTINCT oprcode::oid FROM pg_catalog.pg_operator WHERE oid = ANY($1)`, slices.Collect(maps.Keys(a.operators)))
	a.sampling = load(`SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
		AND proname = ANY($1)`+builtin, names(postgresSampling))
	polymorphic := load(`SELECT oid FROM pg_catalog.pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typname = ANY($1)`+builtin,
		append(names(postgresPolymorphic), "record"))
	generic := slices.Collect(maps.Keys(polymorphic))
	a.casting = load(`SELECT oid FROM pg_catalog.pg_proc WHERE oid = ANY($1) AND proargtypes::oid[] && $2::oid[] AND NOT proname = ANY($3)`,
		slices.Collect(maps.Keys(a.functions)), generic, names(castFree))
	// Operators of any type compare, but for those that are written in SQL.
	maps.Copy(a.casting, load(`SELECT o.oid FROM pg_catalog.pg_operator o JOIN pg_catalog.pg_proc p ON p.oid = o.oprcode
		JOIN pg_catalog.pg_language l ON l.oid = p.prolang WHERE o.oid = ANY($1) AND l.lanname = 'sql' AND (o.oprleft = ANY($2) OR o.oprright = ANY($2))`,
		slices.Collect(maps.Keys(a.operators)), generic))
	if err != nil {
		return a, fmt.Errorf("resolve the lists of allowed functions and types: %w", err)
	}
	return a, nil
}

func names(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
