package storage_test

import (
	"testing"

	"hob"
	"hob/internal/storage"
)

// A server that does not see the bytes of an object, since another one put them where only that one looks, makes no copy
// of it: nobody could read that.
func TestFiles_WhatIsNotHereIsNotCopied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local(t, t.TempDir()))
	w.put("x", "content")
	other := storage.New(storage.Config{Store: w.store, Backend: local(t, t.TempDir()), Secret: w.Secret, BaseURL: w.BaseURL})
	move := hob.FileMove{Bucket: "b", ToBucket: "b", Name: "x", ToName: "y"}
	if _, err := other.Copy(t.Context(), system(), move); hob.KindOf(err) != hob.NotFound {
		t.Errorf("copied there: %v", err)
	}
	if page, err := w.List(t.Context(), system(), hob.FileQuery{Bucket: "b", Limit: 10}); err != nil || page.Total != 1 {
		t.Errorf("objects: %d, %v", page.Total, err)
	}
	if _, err := w.Copy(t.Context(), system(), move); err != nil || w.read("y") != "content" {
		t.Errorf("copied here: %v", err)
	}
}
