// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// A message is found by all its properties right after it was sent.
func TestFindMessages(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		begin := time.Now().UTC().Add(-time.Second)
		other := verified(t, s, s.Dev.APIKey, "other.test")
		post := func(change object) string {
			a := s.API("POST", "/outbound/send", mail(change))
			status(t, "sending", a, 202)
			return into(t, a)["id"].(string)
		}
		one := post(object{"to": []string{"Delivered+One@simulator.test"}, "subject": "Ihre Bestellung #42: größer!", "metadata": object{"order": 42, "a[b]": "x & y"}, "thread_id": "order/42", "tags": []string{"order", "v1.0:x"}})
		two := post(object{"to": []string{"bob@demo.test"}, "bcc": []string{"delivered+two@simulator.test"}, "subject": "Order 43", "metadata": object{"order": 43, "deep": object{}}, "tags": []string{"order", "Order", "order"}})
		three := post(object{"from_email": "zoe@other.test", "to": []string{"delivered@simulator.test"}, "subject": "Later", "send_at": time.Now().Add(time.Hour)})
		for query, want := range map[string][]string{
			"": {three, two, one},
			"recipient=delivered%2BONE@simulator.test":     {one},
			"recipient=simulator.test":                     {three, two, one},
			"recipient=@demo.test":                         {two},
			"from=alice@demo.test":                         {two, one},
			"from=other.test":                              {three},
			"subject=GR%C3%96SSER+42":                      {one},
			"subject=order":                                {two},
			"subject=ord":                                  {},
			"metadata[order]=42":                           {one},
			"metadata%5Ba%5Bb%5D%5D=x+%26+y":               {one},
			"metadata[order]=42&metadata[x]=":              {},
			"metadata_key=order":                           {two, one},
			"metadata_key=order,deep":                      {two},
			"tag=order":                                    {two, one},
			"tag=Order":                                    {two},
			"tag=v1.0:x,Order,none":                        {two, one},
			"tag=order&metadata[order]=43":                 {two},
			"tag=orders":                                   {},
			"thread_id=order%2F42":                         {one},
			"status=scheduled":                             {three},
			"domain_id=" + other:                           {three},
			"mailbox_id=" + s.Dev.Mailboxes[0].ID.String(): {},
			"created_after=" + url.QueryEscape(begin.Format(time.RFC3339Nano)):                        {three, two, one},
			"created_before=" + url.QueryEscape(begin.Format(time.RFC3339Nano)):                       {},
			"created_after=0001-01-01T00:00:00Z":                                                      {three, two, one},
			"created_before=0001-01-01T00:00:00Z":                                                     {},
			"from=demo.test&recipient=simulator.test&metadata[order]=43&subject=43&metadata_key=deep": {two},
		} {
			a := s.API("GET", "/outbound/messages?"+query, nil)
			status(t, query, a, 200)
			if got := ids(t, a); !slices.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", query, got, want)
			}
		}
		page := into(t, s.API("GET", "/outbound/messages?recipient=simulator.test&limit=2", nil))
		rest := s.API("GET", "/outbound/messages?recipient=simulator.test&limit=2&after="+page["next_cursor"].(string), nil)
		if got := ids(t, rest); page["has_more"] != true || !slices.Equal(got, []string{one}) {
			t.Errorf("the second page: %s", rest.Body)
		}
		back := s.API("GET", "/outbound/messages?recipient=simulator.test&limit=1&before="+one, nil)
		if got := ids(t, back); !slices.Equal(got, []string{two}) || into(t, back)["has_more"] != true {
			t.Errorf("the page before: %s", back.Body)
		}
		if got := ids(t, s.APIWithKey(stranger(t, s), "GET", "/outbound/messages?domain_id="+other, nil)); len(got) > 0 {
			t.Errorf("a stranger finds %v", got)
		}
		refused(t, "all that is wrong", s.API("GET", "/outbound/messages?after=x&status=lost&created_after=today&created_before=2026-01-02&mailbox_id=x&domain_id=y&"+
			"recipient=a+b&from=%40&subject=%21%21&thread_id=%0A&metadata[a]=1&metadata[a]=2&metadata[b=3&word=x", nil), 422, "validation_failed",
			"status unknown_value", "metadata[a] given_twice", "metadata[b unknown_parameter", "word unknown_parameter", "after invalid_cursor",
			"created_after invalid_time", "created_before invalid_time", "mailbox_id not_found", "domain_id not_found",
			"recipient invalid_address", "from invalid_address", "subject no_words", "thread_id invalid_thread_id")
		refused(t, "all that is wrong", s.API("GET", "/outbound/messages?after=x&created_after=today&created_before=2026-01-02&mailbox_id=x&domain_id=y&"+
			"recipient=a+b&from=%40&subject=%21%21&thread_id=%0A&tag=a+b", nil), 422, "validation_failed",
			"after invalid_cursor", "created_after invalid_time", "created_before invalid_time", "mailbox_id not_found", "domain_id not_found",
			"recipient invalid_address", "from invalid_address", "subject no_words", "tag invalid_tag", "thread_id invalid_thread_id")
		refused(t, "many tags", s.API("GET", "/outbound/messages?tag=1,2,3,4,5,6,7,8,9,10,11", nil), 422, "validation_failed", "tag too_many_values")
	})
}
