// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// manyFolders creates folders of ten messages each, largeFolder one of many.
const (
	manyFolders = `INSERT INTO folder_message (folder, uid, message, flags, keywords, modseq, size, internal_date, saved_at)
		SELECT f, u, f * 100 + u, 0, '', 1, 1, 0, 0 FROM generate_series(1, 2000) f, generate_series(1, 10) u`
	largeFolder = `INSERT INTO folder_message (folder, uid, message, flags, keywords, modseq, size, internal_date, saved_at)
		SELECT 5000, u, 1000000 + u, 0, '', 1, 1, 0, 0 FROM generate_series(1, 20000) u`
)

// PostgreSQL looks up messages by a list of UIDs, or of keys, one by one, also in a large folder.
// That must hold without statistics, and with statistics in which most folders are small. It also
// finds the messages of one folder without reading those of all folders.
func TestListsInLargeFolders(t *testing.T) {
	var about []namedQuery
	lists := 0
	for _, q := range projectQueries(t) {
		if strings.Contains(q.text, "folder_message") {
			about = append(about, q)
			if keyList.MatchString(q.text) {
				lists++
			}
		}
	}
	if lists < 10 {
		t.Fatalf("there are %d queries with lists", lists)
	}
	url := dbtest.Postgres(t)
	dbtest.Open(t, url)
	conn := plannerConn(t, url)
	n := 0
	if _, err := conn.Exec(t.Context(), `INSERT INTO message (id, mailbox, blob, size, outbound, message_id, envelope, structure)
		SELECT id, 1, id, 1, 0, '', '', '' FROM generate_series(1, 200000, 5) id`); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{manyFolders, `ANALYZE`, largeFolder, `ANALYZE`} {
		if _, err := conn.Exec(t.Context(), step); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), `DISCARD PLANS`); err != nil {
			t.Fatal(err)
		}
		for _, q := range about {
			n++
			plan, err := postgresPlan(t.Context(), conn, n, q.text)
			if err != nil {
				t.Fatal(err)
			}
			if allOfFolder.MatchString(plan) {
				t.Errorf("after %.30s… %s reads the whole folder\n%s\n%s", step, q.where, q.text, plan)
			}
			if allFolders.MatchString(plan) {
				t.Errorf("after %.30s… %s reads all folders\n%s\n%s", step, q.where, q.text, plan)
			}
		}
	}
}

var (
	keyList     = regexp.MustCompile(`\b(uid|message) IN \(\$`)
	allFolders  = regexp.MustCompile(`Scan using \w+ on folder_message\b.*\n( *Filter|[^:]*(->|$))`)
	allOfFolder = regexp.MustCompile(`Filter: \(.*\b(uid|message) = ANY`)
)
