// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	words "github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var (
	bytesOf  = db.SQL(`SELECT blob FROM outbound_message WHERE id = $1`)
	threadOf = db.SQL(`SELECT thread_id FROM outbound_message WHERE id = $1`)
	inEvent  = db.SQL(`SELECT data FROM event WHERE kind = 'inbound_email' ORDER BY id DESC LIMIT 1`)
)

// headerOf returns the header of a sent message.
func headerOf(t *testing.T, s *servertest.Server, id string) words.Header {
	t.Helper()
	parsed, err := db.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	var blob db.ID
	if err := s.DB.One(t.Context(), bytesOf.With(parsed), &blob); err != nil {
		t.Fatal(err)
	}
	b, err := s.Blobs.Load(t.Context(), blob)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(r.All())
	if err != nil {
		t.Fatal(err)
	}
	return words.Header(text)
}

// comesIn delivers a message from outside.
func comesIn(t *testing.T, s *servertest.Server, text string, to ...string) {
	t.Helper()
	from, err := address.Parse("carol@elsewhere.example")
	if err != nil {
		t.Fatal(err)
	}
	l := s.Inbound.Begin(&from, 0)
	for _, one := range to {
		a, err := address.Parse(one)
		if err == nil {
			err = l.AddRecipient(t.Context(), a)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	received := words.ReceivedField{Helo: "x.example", Addr: netip.MustParseAddr("192.0.2.1"), By: "mail.test", With: "ESMTP"}
	if _, err := l.ReceiveMessage(t.Context(), received, strings.NewReader("From: Carol <carol@elsewhere.example>\r\nTo: you@demo.test\r\n"+text+"\r\n\r\nhello\r\n")); err != nil {
		t.Fatal(err)
	}
}

// send sends through the API and returns the response.
func send(t *testing.T, s *servertest.Server, key string, change object) object {
	t.Helper()
	change["to"] = []string{"delivered@simulator.test"}
	a := s.APIWithKey(key, "POST", "/outbound/send", mail(change))
	status(t, "sending", a, 202)
	return into(t, a)
}

func threadPath(id string) string { return "/threads/" + url.PathEscape(id) }

// threadLines lists a thread: the direction and Message-ID of each message.
func threadLines(t *testing.T, a servertest.Response) (lines []string) {
	t.Helper()
	status(t, "a thread", a, 200)
	for _, m := range into(t, a)["messages"].([]any) {
		lines = append(lines, fmt.Sprint(m.(object)["direction"], " ", m.(object)["message_id"]))
	}
	return lines
}

func sameLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestThreads(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice, bob := s.Dev.Mailboxes[0], s.Dev.Mailboxes[1]
		first := send(t, s, s.Dev.APIKey, object{})
		thread, one := first["thread_id"].(string), first["message_id"].(string)
		if h := headerOf(t, s, first["id"].(string)); h.Unfolded("References")+h.Unfolded("In-Reply-To") != "" {
			t.Errorf("a first message answers %s", h)
		}

		// A reply arrives, in two mailboxes.
		comesIn(t, s, "Subject: Re: Hi\r\nMessage-ID: <two@elsewhere.example>\r\nIn-Reply-To: "+one, alice.Address, bob.Address)
		two := "<two@elsewhere.example>"
		var data string
		if err := s.DB.One(t.Context(), inEvent.With(), &data); err != nil || !strings.Contains(data, `"thread_id":"`+thread+`"`) {
			t.Errorf("the event says %s, %v", data, err)
		}

		// Replies come through the API, from a mail client, and by naming the thread.
		third := send(t, s, s.Dev.APIKey, object{"in_reply_to": two})
		three := third["message_id"].(string)
		if third["thread_id"] != thread {
			t.Errorf("an answer is in %v, not %s", third["thread_id"], thread)
		}
		box, err := s.Mailboxes.ByID(t.Context(), alice.ID)
		if err != nil {
			t.Fatal(err)
		}
		to, err := address.Parse("delivered@simulator.test")
		if err != nil {
			t.Fatal(err)
		}
		own, err := address.Parse(alice.Address)
		if err != nil {
			t.Fatal(err)
		}
		submit := func(text string) db.ID {
			id, err := s.Outbox.Submit(t.Context(), box, outbound.Submission{From: &own, To: []outbound.SubmissionRecipient{{Address: to}}},
				strings.NewReader("From: "+alice.Address+"\r\nTo: delivered@simulator.test\r\n"+text+"\r\n\r\nhello\r\n"))
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		submit("Subject: four\r\nMessage-ID: <four@phone.example>\r\nReferences: <lost@x.example> " + one + " " + two + " <unknown@x.example>")
		comesIn(t, s, "Subject: five\r\nMessage-ID: <five@elsewhere.example>\r\nReferences: <four@phone.example>", bob.Address)
		sixth := send(t, s, s.Dev.APIKey, object{"thread_id": thread})
		six := sixth["message_id"].(string)
		h := headerOf(t, s, sixth["id"].(string))
		if got, want := h.Unfolded("References"), strings.Join([]string{one, two, three, "<four@phone.example>", "<five@elsewhere.example>"}, " "); got != want {
			t.Errorf("References: %s\nwant %s", got, want)
		}
		if got := h.Unfolded("In-Reply-To"); got != "<five@elsewhere.example>" {
			t.Errorf("In-Reply-To: %s", got)
		}
		back := send(t, s, s.Dev.APIKey, object{"in_reply_to": two})
		if got, want := headerOf(t, s, back["id"].(string)).Unfolded("References"), one+" "+two; got != want {
			t.Errorf("References of what answers an older one: %s, want %s", got, want)
		}
		all := []string{"outbound " + one, "inbound " + two, "outbound " + three, "outbound <four@phone.example>", "inbound <five@elsewhere.example>",
			"outbound " + six, "outbound " + back["message_id"].(string)}
		whole := s.API("GET", threadPath(thread), nil)
		sameLines(t, "the thread", threadLines(t, whole), all...)
		messages := into(t, whole)["messages"].([]any)
		answer := messages[1].(object)
		if fmt.Sprint(answer["from"]) != "[map[email:carol@elsewhere.example name:Carol]]" || fmt.Sprint(answer["to"]) != "[map[email:you@demo.test name:<nil>]]" || answer["subject"] != "Re: Hi" ||
			answer["mailbox_id"] != alice.ID.String() || answer["status"] != nil {
			t.Errorf("an inbound message: %v", answer)
		}
		if sent := messages[3].(object); sent["mailbox_id"] != alice.ID.String() || fmt.Sprint(sent["to"]) != "[map[email:delivered@simulator.test name:<nil>]]" || sent["status"] == nil {
			t.Errorf("a submission: %v", sent)
		}

		// Page by page.
		var paged []string
		after := ""
		for {
			a := s.API("GET", threadPath(thread)+"?limit=2"+after, nil)
			paged = append(paged, threadLines(t, a)...)
			page := into(t, a)
			if page["has_more"] != true {
				if page["next_cursor"] != nil {
					t.Errorf("a cursor at the end: %s", a.Body)
				}
				break
			}
			after = "&after=" + page["next_cursor"].(string)
		}
		sameLines(t, "in pages", paged, all...)
		refused(t, "a bad cursor", s.API("GET", threadPath(thread)+"?after=x", nil), 422, "validation_failed", "after invalid_cursor")

		// A message deleted in one mailbox stays visible through the other, until it is deleted
		// there, too.
		for _, c := range []struct {
			box  db.ID
			want []string
		}{{alice.ID, all}, {bob.ID, append([]string{all[0]}, append(all[2:4:4], all[5:]...)...)}} {
			expunge(t, s, c.box)
			sameLines(t, "after deleting", threadLines(t, s.API("GET", threadPath(thread), nil)), c.want...)
		}

		// Other accounts see nothing of it, even if they know the Message-IDs.
		rival := stranger(t, s)
		refused(t, "a stranger", s.APIWithKey(rival, "GET", threadPath(thread), nil), 404, "not_found")
		id := submit("Subject: other\r\nMessage-ID: <other@x.example>\r\nReferences: <nothing@x.example>")
		var fresh string
		if err := s.DB.One(t.Context(), threadOf.With(id), &fresh); err != nil || fresh == "" || fresh == thread {
			t.Errorf("what answers nothing is in %q, %v", fresh, err)
		}
	})
}

// expunge deletes all messages of an INBOX.
func expunge(t *testing.T, s *servertest.Server, box db.ID) {
	t.Helper()
	v, err := s.Folders.Open(t.Context(), box, folder.Inbox, false)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if _, err := v.Sync(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if _, _, err := v.UpdateFlags(t.Context(), v.Resolve([]folder.Range{{Lo: 1, Hi: 1 << 30}}, true), folder.FlagUpdate{Op: folder.AddFlags, Flags: folder.Deleted}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Expunge(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// The sender may choose a thread's name.
func TestThreadNames(t *testing.T) {
	s := servertest.Start(t)
	for _, name := range []string{"a", "order/42", "a//b/../c", ".", "..", "ä b?c#d%2f&e=+", "/", strings.Repeat("ü", 127) + "x"} {
		one := send(t, s, s.Dev.APIKey, object{"thread_id": name})
		a := s.API("GET", strings.ReplaceAll(threadPath(name), "/.", "/%2E"), nil)
		sameLines(t, name, threadLines(t, a), "outbound "+one["message_id"].(string))
		if into(t, a)["id"] != name {
			t.Errorf("%q is shown as %v", name, into(t, a)["id"])
		}
	}
	for what, path := range map[string]string{"an unknown one": "/threads/nothing", "a long one": threadPath(strings.Repeat("x", 256)), "a line": "/threads/a%0Ab", "no UTF-8": "/threads/%FF"} {
		refused(t, what, s.API("GET", path, nil), 404, "not_found")
	}
}

// Messages of one batch may reply to each other, just like separate sends.
func TestThreadOfABatch(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		one := send(t, s, s.Dev.APIKey, object{"thread_id": "batch"})["message_id"].(string)
		var sends []object
		for range 3 {
			sends = append(sends, mail(object{"to": []string{"delivered@simulator.test"}, "thread_id": "batch"}))
		}
		sends = append(sends, mail(object{"to": []string{"delivered@simulator.test"}, "in_reply_to": one, "thread_id": "other"}))
		a := s.API("POST", "/outbound/batch", object{"messages": sends})
		status(t, "a batch", a, 202)
		before := []string{one}
		for i, m := range into(t, a)["data"].([]any) {
			h := headerOf(t, s, m.(object)["id"].(string))
			want := before
			if i == 3 {
				want = before[:1]
			}
			if h.Unfolded("References") != strings.Join(want, " ") || h.Unfolded("In-Reply-To") != want[len(want)-1] {
				t.Errorf("message %d: References %s, In-Reply-To %s, want %s", i, h.Unfolded("References"), h.Unfolded("In-Reply-To"), want)
			}
			before = append(before, m.(object)["message_id"].(string))
		}
	})
}

// Mail to one's own mailboxes appears in one thread as sent and as received, however many mailboxes
// received it.
func TestThreadOfOneself(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		a := s.API("POST", "/outbound/send", mail(object{"to": []string{"bob@demo.test", "alice@demo.test"}, "thread_id": "self"}))
		status(t, "sending", a, 202)
		arrived(t, s)
		one := into(t, a)["message_id"].(string)
		sameLines(t, "the thread", threadLines(t, s.API("GET", "/threads/self", nil)), "outbound "+one, "inbound "+one)
		status(t, "deleting a mailbox", s.API("DELETE", "/mailboxes/"+s.Dev.Mailboxes[0].ID.String(), nil), 204)
		status(t, "deleting a mailbox", s.API("DELETE", "/mailboxes/"+s.Dev.Mailboxes[1].ID.String(), nil), 204)
		sameLines(t, "the thread without its mailboxes", threadLines(t, s.API("GET", "/threads/self", nil)), "outbound "+one)

		// A mailing list returns it with the same Message-ID.
		box := into(t, s.API("POST", "/mailboxes", object{"domain_id": s.Dev.Domain.ID.String(), "local_part": "eve"}))
		comesIn(t, s, "Subject: [list] Hi\r\nMessage-ID: "+one, box["address"].(string))
		sameLines(t, "from a list", threadLines(t, s.API("GET", "/threads/self", nil)), "outbound "+one, "inbound "+one)
	})
}

// A domain-restricted key sees the messages that its domain sent and received, and can't reply to
// others.
func TestThreadOfOneDomain(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		other := verified(t, s, s.Dev.APIKey, "other.test")
		status(t, "a mailbox", s.API("POST", "/mailboxes", object{"domain_id": other, "local_part": "zoe"}), 201)
		_, key := newKey(t, s, object{"domain": "other.test"})
		_, nowhere := newKey(t, s, object{"domain": "third.test"})
		mine := send(t, s, s.Dev.APIKey, object{"thread_id": "shared"})["message_id"].(string)
		refused(t, "before", s.APIWithKey(key, "GET", "/threads/shared", nil), 404, "not_found")
		theirs := send(t, s, key, object{"from_email": "zoe@other.test", "thread_id": "shared"})
		if h := headerOf(t, s, theirs["id"].(string)); h.Unfolded("References")+h.Unfolded("In-Reply-To") != "" {
			t.Errorf("it learned of another domain: %s", h.Unfolded("References"))
		}
		if got := send(t, s, key, object{"from_email": "zoe@other.test", "in_reply_to": mine}); got["thread_id"] == "shared" {
			t.Error("it found another domain's thread")
		}
		comesIn(t, s, "Subject: Re\r\nMessage-ID: <re@x.example>\r\nIn-Reply-To: "+mine, "bob@demo.test", "zoe@other.test")
		their := "outbound " + theirs["message_id"].(string)
		sameLines(t, "all", threadLines(t, s.API("GET", "/threads/shared", nil)), "outbound "+mine, their, "inbound <re@x.example>")
		sameLines(t, "one domain", threadLines(t, s.APIWithKey(key, "GET", "/threads/shared", nil)), their, "inbound <re@x.example>")
		refused(t, "a domain that is not there", s.APIWithKey(nowhere, "GET", "/threads/shared", nil), 404, "not_found")
	})
}
