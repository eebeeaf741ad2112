// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// The sum of all mailbox quotas stays within the account's storage. No mailbox can be created,
// grown or restored beyond it, but each may shrink.
func TestStorageLimit(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		storage := func() (limit, allotted int64) {
			t.Helper()
			var l struct {
				Storage struct{ Limit_bytes, Allotted_bytes int64 } //nolint:revive,staticcheck // as the API names them
			}
			s.API("GET", "/limits", nil).Decode(t, &l)
			return l.Storage.Limit_bytes >> 20, l.Storage.Allotted_bytes >> 20
		}
		_, begin := storage()
		may := func(more int64) {
			t.Helper()
			set := quota.Uniform(quota.Unchanged)
			set.StorageMB = begin + more
			if err := s.Limits.SetOverrides(t.Context(), demo(t, s), set); err != nil {
				t.Fatal(err)
			}
		}
		box := func(name string, mb int) servertest.Response {
			t.Helper()
			return s.API("POST", "/mailboxes", object{"domain_id": s.Dev.Domain.ID, "local_part": name, "password": "Aa1!aaaa", "quota_mb": mb})
		}
		const over = "storage_limit_exceeded"
		may(100)
		refused(t, "one too large", box("zoe", 101), 409, over)
		a := box("zoe", 60)
		status(t, "one within", a, 201)
		zoe := "/mailboxes/" + into(t, a)["id"].(string)
		if most, all := storage(); most != begin+100 || all != begin+60 {
			t.Errorf("%d of %d are allotted, want 60 of 100 beside the first %d", all, most, begin)
		}
		quota := func(mb int) servertest.Response {
			t.Helper()
			return s.API("PATCH", zoe, object{"quota_mb": mb})
		}
		refused(t, "a second too large", box("yan", 41), 409, over)
		refused(t, "growing too far", quota(101), 409, over)
		status(t, "growing to the limit", quota(100), 200)
		refused(t, "one more", box("yan", 1), 409, over)
		may(10) // less than the allotted storage
		refused(t, "growing beyond a lowered limit", quota(101), 409, over)
		status(t, "shrinking, but not enough", quota(90), 200)
		status(t, "as it is", quota(90), 200)
		status(t, "another name", s.API("PATCH", zoe, object{"display_name": "Zoe"}), 200)
		refused(t, "growing back", quota(91), 409, over)
		status(t, "deleting", s.API("DELETE", zoe, nil), 204)
		if _, all := storage(); all != begin {
			t.Errorf("%d are allotted, want %d", all, begin)
		}
		refused(t, "back again", s.API("POST", zoe+"/restore", nil), 409, over)
		may(90)
		status(t, "back again when there is room", s.API("POST", zoe+"/restore", nil), 200)

		may(90 + 35)
		var made atomic.Int64
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if a := box(fmt.Sprint("many", i), 10); a.Status == 201 {
					made.Add(1)
				} else {
					refused(t, "one of many", a, 409, over)
				}
			})
		}
		all.Wait()
		if _, all := storage(); made.Load() != 3 || all != begin+90+30 {
			t.Errorf("%d of 8 were made, %d are allotted", made.Load(), all)
		}
		may(-begin) // 0: no limit
		status(t, "without a limit", box("wide", 1000), 201)
	})
}

// The content of deleted mailboxes counts until it is purged: an account can't fill the disk by
// creating and deleting mailboxes.
func TestDeletedMailboxesTakeStorage(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		set := quota.Uniform(quota.Unchanged)
		set.StorageMB = 2*1024 + 3 // alice and bob have 1,024 each
		if err := s.Limits.SetOverrides(t.Context(), demo(t, s), set); err != nil {
			t.Fatal(err)
		}
		box := func(name string, mb int) servertest.Response {
			t.Helper()
			return s.API("POST", "/mailboxes", object{"domain_id": s.Dev.Domain.ID, "local_part": name, "password": "Aa1!aaaa", "quota_mb": mb})
		}
		a := box("one", 3)
		status(t, "the first", a, 201)
		simulateArrival(t, s, "a@x.test", "one@demo.test", "From: a@x.test\r\n\r\n"+strings.Repeat(strings.Repeat("x", 70)+"\r\n", 30_000), object{"spf": "pass"})
		status(t, "deleting it", s.API("DELETE", "/mailboxes/"+into(t, a)["id"].(string), nil), 204)
		refused(t, "one as large", box("two", 3), 409, "storage_limit_exceeded")
		if a := box("two", 1); a.Status != 409 || !strings.Contains(string(a.Body), "Deleted mailboxes hold 3 megabytes") {
			t.Errorf("a smaller one: %d %s", a.Status, a.Body)
		}
		set.StorageMB++
		if err := s.Limits.SetOverrides(t.Context(), demo(t, s), set); err != nil {
			t.Fatal(err)
		}
		status(t, "with room beside it", box("two", 1), 201)
		if used := into(t, s.API("GET", "/limits", nil))["storage"].(object)["used_bytes"].(float64); used < 2e6 {
			t.Errorf("%v bytes are used", used)
		}
	})
}
