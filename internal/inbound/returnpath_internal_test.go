// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/secret"
)

// FuzzShown looks for signed return paths in arbitrary feedback reports: each path found is in the
// input, and each path in the input is found.
func FuzzShown(f *testing.F) {
	key, err := secret.LoadOrCreateKey(f.TempDir() + "/key")
	if err != nil {
		f.Fatal(err)
	}
	own := key.ReturnPath(7, 3)
	for _, seed := range []string{
		"Original-Mail-From: <@demo.test>\r\n", "Received: from a (envelope-from <b@c>) by d\r\n", "Return-Path: <b-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@demo.test>\r\n", strings.Repeat("b-a ", 200), "",
	} {
		f.Add(seed, uint16(len(seed)/2))
	}
	i := &Service{Options: Options{Key: key}}
	f.Fuzz(func(t *testing.T, text string, at uint16) {
		if r, ok := i.findReturnPath(text); ok && !strings.Contains(strings.ToLower(text), key.ReturnPath(int64(r.message), r.n)) {
			t.Fatalf("%+v is not in %q", r, text)
		}
		before := text[:min(int(at), len(text))]
		if strings.Count(strings.ToLower(before), "b-") >= maxPathCandidates {
			return
		}
		if _, ok := i.findReturnPath(before + " <" + strings.ToUpper(own) + "@demo.test>" + text[len(before):]); !ok {
			t.Fatalf("not found behind %q", before)
		}
	})
}
