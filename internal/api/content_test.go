// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// said are strings that only the message of happen contains.
var said = []string{"Your offer", "Yes, please", "Ann Lee", "order.txt"}

// withoutMail are the members of an inbound_email event that have a value for a reader without the
// scope mail.read.
const withoutMail = "check_results content_omitted domain_id envelope id mailbox message_id metadata raw_url size tag thread_id"

// With each set of scopes, a reader gets every event; message content needs mail.read. That holds
// for the list, the stream and webhooks.
func TestContentNeedsMailRead(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c := clientOf(t, s, s.Dev.APIKey)
		sets := []struct {
			name   string
			scopes []string
			mail   bool
		}{
			{"all", []string{"*"}, true},
			{"events and mail", []string{"events.read", "webhooks.write", "mail.read"}, true},
			{"events", []string{"events.read", "webhooks.write"}, false},
			{"all but mail", []string{
				"events.write", "webhooks.write", "messages.write", "mailboxes.write", "domains.write", "sandbox.write", "migrations.write",
				"suppressions.write", "templates.write", "api_keys.write", "outbound.send",
			}, false},
		}
		keys, hooks := map[string]string{}, map[string]*hooked{}
		for _, set := range sets {
			_, keys[set.name] = newKey(t, s, object{"scopes": set.scopes})
			hooks[set.name] = listening(t, clientOf(t, s, keys[set.name]))
			if hooks[set.name].hook.IncludeContent != set.mail {
				t.Errorf("%s: a new webhook includes content: %v", set.name, hooks[set.name].hook.IncludeContent)
			}
		}
		happen(t, s, c)
		full := map[string]client.StreamedEvent{}
		for e, err := range c.StreamEvents(t.Context(), client.EventFilter{}, "0") {
			if err != nil {
				t.Fatal(err)
			}
			if e.ID < hooks["events"].hook.ID {
				continue
			}
			full[e.Type] = e
			if len(full) == len(event.Kinds) {
				break
			}
		}
		for _, set := range sets {
			seen := clientOf(t, s, keys[set.name])
			listed, streamed := eventsOf(t, seen, full), map[string][]byte{}
			for e, err := range seen.StreamEvents(t.Context(), client.EventFilter{}, "0") {
				if err != nil {
					t.Fatal(err)
				}
				streamed[e.ID] = e.Body
				if hasAll(streamed, full) {
					break
				}
			}
			for _, kind := range event.Kinds {
				whole := full[kind]
				want := set.mail || kind != event.InboundEmail
				delivery, err := seen.GetWebhookDelivery(t.Context(), hooks[set.name].hook.ID, whole.ID)
				if err != nil {
					t.Fatal(err)
				}
				for way, body := range map[string][]byte{
					"the list": listed[whole.ID], "the stream": streamed[whole.ID], "the webhook": hooks[set.name].body(whole.ID, kind),
					"the delivery": []byte(delivery.Body),
				} {
					checkContent(t, set.name+": "+kind+" by "+way, body, whole.Body, want)
				}
			}
			// The delivery to another webhook, with content.
			other, err := seen.GetWebhookDelivery(t.Context(), hooks["all"].hook.ID, full[event.InboundEmail].ID)
			if err != nil || (other.Body != "") != set.mail {
				t.Errorf("%s: the delivery to another webhook has the body %q, %v", set.name, other.Body, err)
			}
		}
	})
}

func hasAll(got map[string][]byte, want map[string]client.StreamedEvent) bool {
	for _, e := range want {
		if got[e.ID] == nil {
			return false
		}
	}
	return true
}

// eventsOf returns the events as the list has them.
func eventsOf(t *testing.T, c *client.Client, want map[string]client.StreamedEvent) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for kind, one := range want {
		page, err := c.ListEvents(t.Context(), client.EventFilter{Types: []string{kind}}, client.Paging{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Data {
			if e.ID == one.ID {
				text, err := json.Marshal(map[string]any{"data": e.Data})
				if err != nil {
					t.Fatal(err)
				}
				all[e.ID] = text
			}
		}
	}
	return all
}

func checkContent(t *testing.T, what string, body, whole []byte, content bool) {
	t.Helper()
	var got, want struct{ Data map[string]any }
	if err := json.Unmarshal(body, &got); err != nil {
		t.Errorf("%s: %v in %q", what, err, body)
		return
	}
	if err := json.Unmarshal(whole, &want); err != nil {
		t.Fatal(err)
	}
	if g, w := slices.Sorted(maps.Keys(got.Data)), slices.Sorted(maps.Keys(want.Data)); !slices.Equal(g, w) {
		t.Errorf("%s: has %q, want %q", what, g, w)
	}
	if content {
		return
	}
	for name, value := range got.Data {
		if shown := fmt.Sprint(value); !strings.Contains(" "+withoutMail+" ", " "+name+" ") && shown != "<nil>" && shown != "" && shown != "[]" && shown != "false" {
			t.Errorf("%s: %s is %s", what, name, shown)
		}
	}
	if got.Data["content_omitted"] != true {
		t.Errorf("%s: it doesn't say that content is omitted", what)
	}
	for _, text := range said {
		if strings.Contains(string(body), text) {
			t.Errorf("%s: says %q", what, text)
		}
	}
}

// A key without mail.read can neither enable message content nor redirect it to another URL. Once
// content is disabled, repeated deliveries don't have it.
func TestContentOfWebhooks(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c := clientOf(t, s, s.Dev.APIKey)
		h := listening(t, c)
		path := "/webhooks/" + h.hook.ID
		_, key := newKey(t, s, object{"scopes": []string{"webhooks.write", "events.read"}})
		refused(t, "making one with content", s.APIWithKey(key, "POST", "/webhooks", object{"url": h.hook.URL, "events": []string{"all"}, "include_content": true}), 403, "missing_scope")
		for _, change := range []object{
			{"url": h.hook.URL + "/mine"}, {"events": []string{"inbound_email"}}, {"domains": []string{s.Dev.Domain.ID.String()}},
			{"mailboxes": []string{s.Dev.Mailboxes[0].ID.String()}},
		} {
			refused(t, "changing one with content", s.APIWithKey(key, "PATCH", path, change), 403, "missing_scope")
		}
		status(t, "describing it", s.APIWithKey(key, "PATCH", path, object{"description": "the shop", "url": h.hook.URL}), 200)
		_, id := receive(t, s, object{"subject": "Your offer", "text": "Yes, please"})
		var first string
		servertest.Eventually(t, func() string {
			page, err := c.ListEvents(t.Context(), client.EventFilter{Types: []string{"inbound_email"}}, client.Paging{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Data {
				if strings.Contains(string(e.Data), id) {
					first = e.ID
					return ""
				}
			}
			return "there is no event yet"
		})
		if body := h.body(first, "inbound_email"); !strings.Contains(string(body), "Yes, please") {
			t.Errorf("with content it gets %s", body)
		}
		status(t, "turning content off", s.APIWithKey(key, "PATCH", path, object{"include_content": false, "url": h.hook.URL + "/mine"}), 200)
		refused(t, "turning it on again", s.APIWithKey(key, "PATCH", path, object{"include_content": true}), 403, "missing_scope")
		h.got.Clear()
		status(t, "sending it again", s.APIWithKey(key, "POST", path+"/deliveries/"+first+"/redeliver", nil), 200)
		if body := h.body(first, "inbound_email"); strings.Contains(string(body), "Yes, please") || strings.Contains(string(body), "Your offer") {
			t.Errorf("without content it gets %s", body)
		}
		var thread struct {
			Messages []struct {
				Direction, Subject string
				From               []object
				Omitted            bool `json:"content_omitted"`
			}
		}
		_, threads := newKey(t, s, object{"scopes": []string{"messages.read"}})
		kept, err := c.GetMailboxMessage(t.Context(), s.Dev.Mailboxes[0].ID.String(), id)
		if err != nil {
			t.Fatal(err)
		}
		s.APIWithKey(threads, "GET", "/threads/"+kept.ThreadID, nil).Decode(t, &thread)
		if m := thread.Messages; len(m) != 1 || m[0].Direction != "inbound" || len(m[0].From) != 0 || m[0].Subject != "" || !m[0].Omitted {
			t.Errorf("the thread without mail.read is %+v", m)
		}
	})
}

// Forwarded mail is received mail, too: its author and subject need mail.read.
func TestForwardedNeedsMailRead(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		newAlias(t, s, "both@demo.test", "far@away.example.net", "bob@demo.test")
		simulateArrival(t, s, "ann@elsewhere.example.net", "both@demo.test", forwarded, object{"spf": "pass"})
		_, sees := newKey(t, s, object{"scopes": []string{"messages.read", "messages.write"}})
		_, reads := newKey(t, s, object{"scopes": []string{"messages.read", "mail.read"}})
		all := func(key, query string) []any {
			t.Helper()
			return into(t, s.APIWithKey(key, "GET", "/outbound/messages"+query, nil))["data"].([]any)
		}
		servertest.Eventually(t, func() string {
			if list := all(sees, ""); len(list) != 1 || list[0].(object)["status"] != "delivered" {
				return fmt.Sprint("there are ", list)
			}
			return ""
		})
		m := all(sees, "")[0].(object)
		path := "/outbound/messages/" + m["id"].(string)
		for what, body := range map[string][]byte{
			"the list": s.APIWithKey(sees, "GET", "/outbound/messages", nil).Body, "the message": s.APIWithKey(sees, "GET", path, nil).Body,
			"the thread": s.APIWithKey(sees, "GET", "/threads/"+m["thread_id"].(string), nil).Body, "a search": s.APIWithKey(sees, "GET", "/outbound/messages?recipient=far@away.example.net", nil).Body,
		} {
			if text := string(body); strings.Contains(text, "on and on") || strings.Contains(text, "ann@elsewhere") || strings.Contains(text, "=ann") || !strings.Contains(text, `"content_omitted":true`) {
				t.Errorf("%s tells %s", what, text)
			}
		}
		for _, query := range []string{"?subject=on", "?from=elsewhere.example.net", "?from=ann@elsewhere.example.net"} {
			if n := len(all(sees, query)); n != 0 {
				t.Errorf("%s finds %d", query, n)
			}
			if n := len(all(reads, query)); n != 1 {
				t.Errorf("with mail.read %s finds %d", query, n)
			}
		}
		got := into(t, s.APIWithKey(reads, "GET", path, nil))
		if got["subject"] != "on and on" || got["content_omitted"] != false || !strings.Contains(fmt.Sprint(got["from"]), "ann@elsewhere") {
			t.Errorf("with mail.read it is %v", got)
		}
	})
}
