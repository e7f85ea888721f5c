package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hob"
)

// bucketsKey is the key of config_override that lists the buckets an agent may use.
const bucketsKey = "buckets"

const (
	// maxGrantBuckets and maxGrantPrefixes bound what an assignment lists.
	maxGrantBuckets  = 100
	maxGrantPrefixes = 100
	// filesOff says why the storage tools are off.
	filesOff = "this server stores no files"
	// bucketsForm says how the key is written.
	bucketsForm = `must be a list of buckets, like ["reports"], or an object of prefixes by bucket, like {"reports":["2026/"]}`
)

// bucketGrant is what an assignment lets its agent reach: bucket → the beginnings of names, none for the whole bucket. nil
// is every bucket of the workspace.
type bucketGrant map[string][]string

// readBuckets reads "buckets". Empty lists are refused: to some they mean nothing, to others everything.
func readBuckets(_ *Set, keys map[string]json.RawMessage) (any, error) {
	raw, ok := keys[bucketsKey]
	if !ok {
		return bucketGrant(nil), nil
	}
	var list []string
	var byBucket map[string][]string
	g := bucketGrant{}
	switch {
	case json.Unmarshal(raw, &list) == nil && list != nil:
		for _, id := range list {
			g[id] = nil
		}
	case json.Unmarshal(raw, &byBucket) == nil && byBucket != nil:
		for id, prefixes := range byBucket {
			if len(prefixes) == 0 || len(prefixes) > maxGrantPrefixes {
				return nil, badKey(bucketsKey, "must name 1 to %d prefixes of %s; for the whole bucket write a list of buckets, or the prefix \"\"", maxGrantPrefixes, shorten(id))
			}
			kept, err := readPrefixes(id, prefixes)
			if err != nil {
				return nil, err
			}
			g[id] = kept
		}
	default:
		return nil, badKey(bucketsKey, "%s", bucketsForm)
	}
	if len(g) == 0 || len(g) > maxGrantBuckets {
		return nil, badKey(bucketsKey, "must name 1 to %d buckets; leave it out to allow all", maxGrantBuckets)
	}
	for id := range g {
		if err := hob.CheckBucketID(id); err != nil {
			return nil, badKey(bucketsKey, "has %q, which is no bucket's id", shorten(id))
		}
	}
	return g, nil
}

// readPrefixes checks the prefixes of one bucket; "" among them is the whole bucket.
func readPrefixes(id string, prefixes []string) ([]string, error) {
	var kept []string
	for _, p := range prefixes {
		p = strings.TrimLeft(p, "/")
		if p == "" {
			return nil, nil
		}
		if _, err := hob.CleanFileName(strings.TrimSuffix(p, "/")); err != nil {
			return nil, badKey(bucketsKey, "has a prefix of %s that no name can begin with: %q", shorten(id), shorten(p))
		}
		kept = append(kept, p)
	}
	slices.Sort(kept)
	return slices.Compact(kept), nil
}

// checkBuckets warns of a tool that reaches everything, or nothing.
func checkBuckets(tool string) func(checking) string {
	return func(c checking) string {
		g := c.options.(bucketGrant) //nolint:forcetypeassert // readBuckets gives nothing else
		names := slices.Sorted(maps.Keys(g))
		var pinned string
		if json.Unmarshal(c.pinned["bucket"], &pinned) == nil && pinned != "" {
			if why := g.outside(pinned); why != "" {
				return tool + " will not work: config_override.bucket pins a bucket that config_override.buckets does not name"
			}
			names = []string{pinned}
		}
		if len(names) == 0 {
			return tool + ` reaches every bucket of the workspace; to bound it set config_override.buckets, for example {"buckets":["reports"]}`
		}
		var warnings []string
		for _, id := range names {
			if w := g.doubt(c, tool, id); w != "" {
				warnings = append(warnings, w)
			}
		}
		return strings.Join(warnings, "; ")
	}
}

// doubt is what should be known of a bucket that an assignment names.
func (g bucketGrant) doubt(c checking, tool, id string) string {
	b, err := c.set.deps.Files.Bucket(c.ctx, hob.System(c.ws), id)
	switch {
	case hob.KindOf(err) == hob.NotFound:
		return fmt.Sprintf(`there is no bucket %q yet; POST /storage/v1/bucket {"id":%q} makes it`, shorten(id), shorten(id))
	case err != nil:
		return fmt.Sprintf("whether there is a bucket %q cannot be looked at now", shorten(id))
	case b.Owned && g == nil:
		return fmt.Sprintf("%s will not work: %s is reached only where config_override.buckets names it", tool, id)
	case b.Owned:
		return fmt.Sprintf("%s reaches the files of every owner in %s", tool, id)
	}
	return ""
}

// closed says why an owned bucket may not be used, "" where it may: its files are their owners' alone, and an agent that
// reaches every bucket does not mean these. The error is of the storage.
func (g bucketGrant) closed(ctx context.Context, files hob.FileService, by hob.Principal, bucket string) (why string, err error) {
	if g != nil { // what it does not name is outside
		return "", nil
	}
	b, err := files.Bucket(ctx, by, bucket)
	if err != nil || !b.Owned {
		return "", err
	}
	return fmt.Sprintf("the bucket %s keeps files that are their owners' alone; this tool may use it only where config_override.buckets of its assignment names it", b.ID), nil
}

// outside says why a bucket may not be used, "" where it may.
func (g bucketGrant) outside(bucket string) string {
	if _, ok := g[bucket]; ok || g == nil {
		return ""
	}
	return fmt.Sprintf("the bucket %q is not one that this tool may use; it may use %s", shorten(bucket), strings.Join(slices.Sorted(maps.Keys(g)), ", "))
}

// allows says why an object may not be used, "" where it may.
func (g bucketGrant) allows(bucket, name string) string {
	if why := g.outside(bucket); why != "" {
		return why
	}
	prefixes := g[bucket]
	if len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
		return ""
	}
	return fmt.Sprintf("in the bucket %s this tool may use only paths that begin with %s", bucket, strings.Join(prefixes, ", "))
}

// narrow gives the prefix to list for one that was asked for: what is asked for lies in what is allowed, or the other way
// round. why says what else may be asked for.
func (g bucketGrant) narrow(bucket, prefix string) (to, why string) {
	if why := g.outside(bucket); why != "" {
		return "", why
	}
	if g.allows(bucket, prefix) == "" {
		return prefix, ""
	}
	var below []string
	for _, p := range g[bucket] {
		if strings.HasPrefix(p, prefix) {
			below = append(below, p)
		}
	}
	if len(below) == 1 {
		return below[0], ""
	}
	return "", g.allows(bucket, prefix)
}

// storageText is what a model may read about an error of the storage: the sentences made for it, and for a bucket that is
// not there who can make it.
func storageText(err error, bucket string) string {
	var e *hob.Error
	switch {
	case !errors.As(err, &e) || e.Kind == hob.Internal || e.Kind == hob.Fenced:
		return "the storage cannot answer now"
	case e.Code == string(hob.BucketObject)+"_not_found":
		return fmt.Sprintf(`there is no bucket %q; whoever runs the workspace makes it with POST /storage/v1/bucket {"id":%q}`, shorten(bucket), shorten(bucket))
	case e.Code == "object_exists":
		return "there is a file of this path already, and it may not be replaced; choose another path"
	}
	return e.Message
}
