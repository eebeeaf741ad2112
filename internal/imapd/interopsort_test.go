// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"fmt"
	"testing"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
)

// A third-party client understands the responses to SORT, THREAD and BINARY.
func TestInteropSort(t *testing.T) {
	each(t, func(h *fixture) {
		h.threadable()
		c, err := imapclient.DialTLS(h.secure, &imapclient.Options{TLSConfig: h.tlsConfig()})
		h.must(err)
		defer c.Close()
		h.must(c.Login(alice, password).Wait())
		_, err = c.Select("INBOX", nil).Wait()
		h.must(err)

		sorted, err := c.UIDSort(&imapclient.SortOptions{
			SearchCriteria: &imap.SearchCriteria{Header: []imap.SearchCriteriaHeaderField{{Key: "Subject", Value: "e"}}},
			SortCriteria:   []imapclient.SortCriterion{{Key: imapclient.SortKeyDate, Reverse: true}},
		}).Wait()
		h.must(err)
		if got := fmt.Sprint(sorted); got != "[13 12 11 6 2]" {
			t.Errorf("sorted %s", got)
		}
		branches, err := c.Thread(&imapclient.ThreadOptions{Algorithm: imap.ThreadReferences, SearchCriteria: &imap.SearchCriteria{}}).Wait()
		h.must(err)
		if got := fmt.Sprint(branches); got != "[{[1] []} {[2 3] [{[4 5] []} {[6 7] []}]} {[] [{[8] []} {[9] []}]} {[10] [{[11] []} {[12] []}]} {[13 14] []}]" {
			t.Errorf("threads %s", got)
		}

		part := &imap.FetchItemBinarySection{Part: []int{1}, Peek: true}
		rows, err := c.Fetch(imap.SeqSetNum(1, 2), &imap.FetchOptions{UID: true, BinarySection: []*imap.FetchItemBinarySection{part}}).Collect()
		h.must(err)
		if len(rows) != 2 || string(rows[0].FindBinarySection(part)) != "x\r\n" {
			t.Errorf("fetched %d messages, the first %+v", len(rows), rows)
		}
	})
}
