// SPDX-License-Identifier: Apache-2.0

package inbound_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/summary"
)

var eventIDs = db.SQL(`SELECT id FROM event WHERE account = $1 AND kind = 'inbound_email' ORDER BY id`)

// arrivals returns the inbound_email events as an API client gets them.
func (h *fixture) arrivals() (all []event.Event) {
	h.t.Helper()
	ids, err := db.All(h.t.Context(), h.db, eventIDs.With(h.account), func(r db.Row) (id db.ID, err error) { return id, r.Scan(&id) })
	if err != nil {
		h.t.Fatal(err)
	}
	for _, id := range ids {
		e, err := h.Events.Get(h.t.Context(), h.account, id, true)
		if err != nil {
			h.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func arrivalOf(t testing.TB, e event.Event) (a inbound.EmailEvent) {
	t.Helper()
	if err := json.Unmarshal(e.Data, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// Readers of the event always get the same content, even after the message is deleted.
func TestArrivalContent(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		bob := h.box("bob", 10)
		if _, err := h.send(mail, "bob@demo.test"); err != nil {
			t.Fatal(err)
		}
		e := h.arrivals()[0]
		a := arrivalOf(t, e)
		here := "https://mail.host.test/api/v1/mailboxes/" + bob.ID.String() + "/messages/" + a.ID.String()
		if a.Content == nil || a.Gone || a.Text == nil || *a.Text != "hello" || a.HTML != nil || a.RawURL != here+"/raw" {
			t.Fatalf("the event is %s", e.Data)
		}
		file := summary.Attachment{ContentType: "text/csv", Size: 3, Disposition: "attachment", URL: apijson.NullString(here + "/attachments/0")}
		if len(a.Attachments) != 1 || a.Attachments[0] != file {
			t.Errorf("attachments %+v", a.Attachments)
		}
		if h := a.Headers; len(h) < 8 || h[0] != (summary.HeaderField{Name: "Return-Path", Value: "<ann@example.com>"}) || h[1] != (summary.HeaderField{Name: "Delivered-To", Value: "bob@demo.test"}) {
			t.Errorf("headers %+v", h)
		}
		body, err := e.Body()
		if err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(h.t, h.db, deleteMessages.With())
		again := h.arrivals()[0]
		if text, err := again.Body(); err != nil || string(text) != string(body) {
			t.Errorf("the event was\n%s and is\n%s, %v", body, text, err)
		}
	})
}

var (
	deleteMessages = db.SQL(`DELETE FROM message`)
	deleteBlobs    = db.SQL(`DELETE FROM blob`)
)

// If the message is deleted before the event is first read, the event says so and has the known
// fields.
func TestArrivalGone(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		h.box("bob", 100)
		large := mail + strings.Repeat("0123456789abcdef\r\n", 10_000)
		for range 3 {
			if _, err := h.send(large, "bob@demo.test"); err != nil {
				t.Fatal(err)
			}
		}
		// The file of a large message is missing, which should not happen.
		files, err := filepath.Glob(filepath.Join(h.blobs, "*", "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("files %v, %v in %s", files, err, h.blobs)
		}
		for _, name := range files {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		e, err := h.Events.Get(t.Context(), h.account, h.firstEvent(), true)
		if err != nil {
			t.Fatal(err)
		}
		check := func(e event.Event) {
			t.Helper()
			a := arrivalOf(t, e)
			if !a.Gone || a.Content == nil || a.Text != nil || len(a.Headers)+len(a.Attachments) != 0 || a.Subject != "schön" || a.MessageID != "<1@example.com>" ||
				!strings.Contains(string(e.Data), `"attachments":[]`) {
				t.Errorf("the event is %s", e.Data)
			}
		}
		check(e)
		dbtest.Exec(h.t, h.db, deleteBlobs.With())
		check(h.arrivals()[1])
		dbtest.Exec(h.t, h.db, deleteMessages.With())
		check(h.arrivals()[2])
	})
}

// An event whose message can't be read doesn't block later events.
func TestArrivalUnread(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		h.box("bob", 100)
		for _, text := range []string{mail + strings.Repeat("0123456789abcdef\r\n", 10_000), mail} {
			if _, err := h.send(text, "bob@demo.test"); err != nil {
				t.Fatal(err)
			}
		}
		files, err := filepath.Glob(filepath.Join(h.blobs, "??", "*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("files %v, %v", files, err)
		}
		if err := errors.Join(os.Remove(files[0]), os.Symlink("/proc/self/mem", files[0])); err != nil { // EIO
			t.Fatal(err)
		}
		all := h.arrivals()
		if a := arrivalOf(t, all[0]); !a.Gone || a.Content == nil || a.Text != nil || a.Subject != "schön" {
			t.Errorf("the event is %s", all[0].Data)
		}
		if a := arrivalOf(t, all[1]); a.Gone || a.Text == nil || *a.Text != "hello" {
			t.Errorf("the event is %s", all[1].Data)
		}
	})
}

func (h *fixture) firstEvent() (id db.ID) {
	h.t.Helper()
	if err := h.db.One(h.t.Context(), eventIDs.With(h.account), &id); err != nil {
		h.t.Fatal(err)
	}
	return id
}

// Mail recognized as spam goes to Junk, and the check results are stored.
func TestResults(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		bob := h.box("bob", 10)
		from := addr(t, "ann@example.com")
		l := h.Begin(&from, 0)
		l.CheckResults = &summary.CheckResults{SPF: "fail", Spam: summary.Spam}
		if err := l.AddRecipient(t.Context(), addr(t, "bob@demo.test")); err != nil {
			t.Fatal(err)
		}
		if _, err := l.ReceiveMessage(t.Context(), received, strings.NewReader(mail)); err != nil {
			t.Fatal(err)
		}
		a := arrivalOf(t, h.arrivals()[0])
		if a.CheckResults != (summary.CheckResults{SPF: "fail", DKIM: "none", DMARC: "none", Spam: "spam"}) {
			t.Errorf("check results %+v", a.CheckResults)
		}
		m, err := h.Folders.Message(t.Context(), bob.ID, a.ID)
		if err != nil || len(m.Locations) != 1 || m.Locations[0].Folder != "Junk" || m.CheckResults != "spf=fail spam=spam" {
			t.Errorf("it is %+v, %v", m, err)
		}
	})
}
