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

func files(n int, content string) (list []jsonObject) {
	for i := range n {
		list = append(list, jsonObject{"filename": fmt.Sprint(i, ".txt"), "content": content})
	}
	return list
}

// Every rule of a send, from outside.
func TestSendRules(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		const to = "r%d@simulator.test"
		for what, c := range map[string]struct {
			change jsonObject
			faults []string
		}{
			"51 recipients":         {jsonObject{"to": many(49, to), "cc": []string{"x@simulator.test"}, "bcc": []string{"y@simulator.test"}}, []string{"to too_many_recipients"}},
			"bad addresses":         {jsonObject{"to": []string{"x", "a@b.test"}, "cc": []string{"a@b@c"}, "reply_to": "z"}, []string{"reply_to invalid_address", "to[0] invalid_address", "cc[0] invalid_address"}},
			"neither text nor html": {jsonObject{"text": ""}, []string{"text text_or_html_required"}},
			"a named sender":        {jsonObject{"from_email": "Alice <alice@demo.test>"}, []string{"from_email invalid_address"}},
			"11 attachments":        {jsonObject{"attachments": files(11, "aGk=")}, []string{"attachments too_many_attachments"}},
			"1,000 attachments":     {jsonObject{"attachments": files(1000, "aGk=")}, []string{"attachments too_many_attachments"}},
			"no name":               {jsonObject{"attachments": []jsonObject{{"content": "aGk="}}}, []string{"attachments[0].filename required"}},
			"a strange disposition": {jsonObject{"attachments": []jsonObject{{"filename": "x", "content": "aGk=", "disposition": "hidden"}}}, []string{"attachments[0].disposition unknown_value"}},
			"a header of ours":      {jsonObject{"headers": jsonObject{"Subject": "x", "X-Mailstead-Id": "y"}}, []string{"headers.Subject header_not_allowed", "headers.X-Mailstead-Id header_reserved"}},
			"a folded header":       {jsonObject{"headers": jsonObject{"X-A": "a\r\nBcc: eve@x.test"}}, []string{"headers.X-A control_character"}},
			"a folded subject":      {jsonObject{"subject": "a\r\nBcc: eve@x.test"}, []string{"subject control_character"}},
			"much metadata":         {jsonObject{"metadata": jsonObject{"a": strings.Repeat("x", 16<<10)}}, []string{"metadata too_long"}},
			"a bad thread":          {jsonObject{"thread_id": "a\tb"}, []string{"thread_id invalid_thread_id"}},
			"a sender not allowed":  {jsonObject{"from_email": "x@rival.test", "text": ""}, []string{"text text_or_html_required"}},
		} {
			refused(t, what, s.API("POST", "/outbound/send", mail(c.change)), 422, "validation_failed", c.faults...)
		}
		verified(t, s, stranger(t, s), "rival.test")
		status(t, "an unverified domain", s.API("POST", "/domains", jsonObject{"name": "new.test"}), 201)
		for _, from := range []string{"x@rival.test", "x@new.test", "x@sub.demo.test", "x@elsewhere.example", "x@emo.test"} {
			refused(t, from, s.API("POST", "/outbound/send", mail(jsonObject{"from_email": from})), 403, "sender_not_allowed")
		}

		a := s.API("POST", "/outbound/send", mail(jsonObject{"from_email": "Anything.Else@DEMO.test", "to": append(many(48, to), "R1@simulator.test", "r1@SIMULATOR.test"),
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

// What a send answers, what the API shows of it, and what arrives.
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
			fmt.Sprint(m["recipients"]) != "[map[email:bob@demo.test status:queued type:to] map[email:alice@demo.test status:queued type:bcc]]" {
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

// Events come in pages both ways, by kind and by message.
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
			a := s.API("POST", "/outbound/send", mail(jsonObject{"metadata": jsonObject{"html": "<b>"}}))
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
		// Back from the second page shows the first.
		first := s.API("GET", "/events?limit=3", nil)
		second := s.API("GET", "/events?limit=1&after="+into(t, first)["next_cursor"].(string), nil)
		back := s.API("GET", "/events?limit=3&before="+into(t, second)["next_cursor"].(string), nil)
		if got, want := ids(t, back), whole[:3]; fmt.Sprint(got) != fmt.Sprint(want) || into(t, back)["has_more"] != false {
			t.Errorf("back %v, want %v: %s", got, want, back.Body)
		}
		for query, fault := range map[string]string{"type=all": "type unknown_type", "after=x": "after invalid_cursor", "after=-1": "after invalid_cursor",
			"before=0": "before invalid_cursor", "after=1&before=2": "before conflicting_cursors", "message=x": "message invalid_id", "limit=0": "limit out_of_range"} {
			refused(t, query, s.API("GET", "/events?"+query, nil), 422, "validation_failed", fault)
		}
	})
}
