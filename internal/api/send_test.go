// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

func many(n int, form string) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf(form, i))
	}
	return list
}

func files(n int, content string) (list []object) {
	for i := range n {
		list = append(list, object{"filename": fmt.Sprint(i, ".txt"), "content": content})
	}
	return list
}

// The tests cover every rule of a send through the API.
func TestSendRules(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		const to = "r%d@simulator.test"
		for what, c := range map[string]struct {
			change object
			faults []string
		}{
			"51 recipients":         {object{"to": many(49, to), "cc": []string{"x@simulator.test"}, "bcc": []string{"y@simulator.test"}}, []string{"to too_many_recipients"}},
			"bad addresses":         {object{"to": []string{"x", "a@b.test"}, "cc": []string{"a@b@c"}, "reply_to": "z"}, []string{"reply_to invalid_address", "to[0] invalid_address", "cc[0] invalid_address"}},
			"neither text nor html": {object{"text": ""}, []string{"text text_or_html_required"}},
			"a named sender":        {object{"from_email": "Alice <alice@demo.test>"}, []string{"from_email invalid_address"}},
			"11 attachments":        {object{"attachments": files(11, "aGk=")}, []string{"attachments too_many_attachments"}},
			"1,000 attachments":     {object{"attachments": files(1000, "aGk=")}, []string{"attachments too_many_attachments"}},
			"no name":               {object{"attachments": []object{{"content": "aGk="}}}, []string{"attachments[0].filename required"}},
			"a strange disposition": {object{"attachments": []object{{"filename": "x", "content": "aGk=", "disposition": "hidden"}}}, []string{"attachments[0].disposition unknown_value"}},
			"a header of ours":      {object{"headers": object{"Subject": "x", "X-Mailstead-Id": "y"}}, []string{"headers.Subject header_not_allowed", "headers.X-Mailstead-Id header_reserved"}},
			"a folded header":       {object{"headers": object{"X-A": "a\r\nBcc: eve@x.test"}}, []string{"headers.X-A control_character"}},
			"a folded subject":      {object{"subject": "a\r\nBcc: eve@x.test"}, []string{"subject control_character"}},
			"much metadata":         {object{"metadata": object{"a": strings.Repeat("x", 16<<10)}}, []string{"metadata too_long"}},
			"a bad thread":          {object{"thread_id": "a\tb"}, []string{"thread_id invalid_thread_id"}},
			"a sender not allowed":  {object{"from_email": "x@rival.test", "text": ""}, []string{"text text_or_html_required"}},
		} {
			refused(t, what, s.API("POST", "/outbound/send", mail(c.change)), 422, "validation_failed", c.faults...)
		}
		verified(t, s, stranger(t, s), "rival.test")
		status(t, "an unverified domain", s.API("POST", "/domains", object{"name": "new.test"}), 201)
		for _, from := range []string{"x@rival.test", "x@new.test", "x@sub.demo.test", "x@elsewhere.example", "x@emo.test"} {
			refused(t, from, s.API("POST", "/outbound/send", mail(object{"from_email": from})), 403, "sender_not_allowed")
		}

		a := s.API("POST", "/outbound/send", mail(object{"from_email": "Anything.Else@DEMO.test", "to": append(many(48, to), "R1@simulator.test", "r1@SIMULATOR.test"),
			"cc": []string{"r2@simulator.test", "Cc <c@simulator.test>"}, "bcc": []string{"c@simulator.test", "b@simulator.test"}}))
		status(t, "50 recipients with duplicates", a, 202)
		if n := len(into(t, a)["recipients"].([]any)); n != 50 {
			t.Errorf("%d recipients", n)
		}
		if a := s.API("GET", "/outbound/messages", nil); len(ids(t, a)) != 1 {
			t.Errorf("what was refused is there: %s", a.Body)
		}
	})
}

// The response to a send, the API's view of the message, and the delivered message agree.
func TestSend(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		const metadata = `{"n":12345678901234567890,"f":1.50,"e":1e2,"s":"<b> & 'ü' \u2028","deep":[{"a":null}]}`
		a := s.API("POST", "/outbound/send", `{"from_email":"alice@demo.test","from_name":"Alice <A>","to":["Bob <bob@demo.test>"],"bcc":["alice@demo.test"],
			"subject":"<Grüße> & more","text":"Hello","thread_id":"order-42","metadata":`+metadata+`,
			"attachments":[{"filename":"a&b.txt","content":"aGVs\r\nbG8\u003d"},{"filename":"empty.txt","content":""}]}`)
		status(t, "sending", a, 202)
		if !bytes.Contains(a.Body, []byte(`"metadata":`+metadata)) {
			t.Errorf("the metadata is not as it was given: %s", a.Body)
		}
		m := into(t, a)
		if m["status"] != "queued" || m["thread_id"] != "order-42" || m["message_id"] != "<"+m["id"].(string)+"@demo.test>" ||
			fmt.Sprint(m["recipients"]) != "[map[email:bob@demo.test reason:<nil> status:queued type:to] map[email:alice@demo.test reason:<nil> status:queued type:bcc]]" {
			t.Errorf("got %s", a.Body)
		}
		got := arrived(t, s)
		for _, want := range []string{"hello", "Subject: ", "a&b.txt"} {
			if want == "hello" {
				want = base64.StdEncoding.EncodeToString([]byte("hello"))
			}
			if !strings.Contains(got, want) {
				t.Errorf("%q is not in\n%s", want, got)
			}
		}
		if strings.Contains(strings.ToLower(got), "\nbcc:") || strings.Contains(got, "for <alice@") {
			t.Errorf("the blind copy shows in\n%s", got)
		}

		a = s.API("GET", "/outbound/messages/"+m["id"].(string), nil)
		status(t, "showing", a, 200)
		shown := into(t, a)
		if shown["created_at"] != m["created_at"] || shown["subject"] != "<Grüße> & more" || shown["mailbox_id"] != nil ||
			!bytes.Contains(a.Body, []byte(`"subject":"<Grüße> & more"`)) || !bytes.Contains(a.Body, []byte(`"metadata":`+metadata)) {
			t.Errorf("sent %v, shown %s", m, a.Body)
		}
		foreign := stranger(t, s)
		refused(t, "another's message", s.APIWithKey(foreign, "GET", "/outbound/messages/"+m["id"].(string), nil), 404, "not_found")
		refused(t, "another's events", s.APIWithKey(foreign, "GET", "/events?message=x", nil), 422, "validation_failed", "message invalid_id")
	})
}

// arrived waits for a message in Bob's INBOX and returns it.
func arrived(t *testing.T, s *servertest.Server) string {
	t.Helper()
	bob := s.Dev.Mailboxes[1]
	c, err := imapclient.DialTLS(s.Addr("imaps"), &imapclient.Options{TLSConfig: s.TLS()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the test is over
	if err := c.Login(bob.Address, bob.Password).Wait(); err != nil {
		t.Fatal(err)
	}
	inbox, err := s.Folders.Status(t.Context(), bob.ID, "INBOX")
	if err != nil {
		t.Fatal(err)
	}
	sub := s.Hub.Subscribe(notify.Key{Kind: notify.Folder, ID: int64(inbox.ID)})
	defer sub.Close()
	for {
		box, err := c.Select("INBOX", nil).Wait()
		if err != nil {
			t.Fatal(err)
		}
		if box.NumMessages > 0 {
			break
		}
		select {
		case <-sub.C:
		case <-t.Context().Done():
			t.Fatal("nothing arrived")
		}
	}
	section := &imap.FetchItemBodySection{Peek: true}
	got, err := c.Fetch(imap.SeqSetNum(1), &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{section}}).Collect()
	if err != nil || len(got) != 1 {
		t.Fatalf("%d messages, %v", len(got), err)
	}
	return string(got[0].FindBodySection(section))
}

// Events have pages in both directions, and filters by type and by message.
func TestEvents(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(acc.ID)})
		defer sub.Close()
		before := len(ids(t, s.API("GET", "/events?limit=100&type=inbound_email,mailbox_created", nil)))
		var sent string
		for range 3 {
			a := s.API("POST", "/outbound/send", mail(object{"metadata": object{"html": "<b>"}}))
			status(t, "sending", a, 202)
			sent = into(t, a)["id"].(string)
		}
		count := func(query string) int { return len(ids(t, s.API("GET", "/events?limit=100&"+query, nil))) }
		for count("type=delivery_status") < 3 || count("type=inbound_email,mailbox_created") < before+3 {
			select {
			case <-sub.C:
			case <-t.Context().Done():
				t.Fatal("the events did not come")
			}
		}
		if n := count("type=delivery_status&message=" + sent); n != 1 {
			t.Errorf("%d events of one message", n)
		}
		if n := count("type=bounce&message=" + sent); n != 0 {
			t.Errorf("%d bounces", n)
		}
		whole := ids(t, s.API("GET", "/events?limit=100", nil))
		var forth []string
		walk(t, s, "/events", "after", "", func(page []string) { forth = append(forth, page...) })
		if fmt.Sprint(forth) != fmt.Sprint(whole) {
			t.Errorf("forth %v, whole %v", forth, whole)
		}
		// Paging back from the second page returns the first.
		first := s.API("GET", "/events?limit=3", nil)
		second := s.API("GET", "/events?limit=1&after="+into(t, first)["next_cursor"].(string), nil)
		back := s.API("GET", "/events?limit=3&before="+into(t, second)["next_cursor"].(string), nil)
		if got, want := ids(t, back), whole[:3]; fmt.Sprint(got) != fmt.Sprint(want) || into(t, back)["has_more"] != false {
			t.Errorf("back %v, want %v: %s", got, want, back.Body)
		}
		for query, fault := range map[string]string{"type=all": "type unknown_value", "type=x,bounce,y": "type unknown_value", "after=x": "after invalid_cursor", "after=-1": "after invalid_cursor",
			"before=0": "before invalid_cursor", "after=1": "after invalid_cursor", "after=" + whole[0] + "&before=" + whole[1]: "before conflicting_cursors", "message=x": "message invalid_id", "limit=0": "limit out_of_range"} {
			refused(t, query, s.API("GET", "/events?"+query, nil), 422, "validation_failed", fault)
		}
	})
}
