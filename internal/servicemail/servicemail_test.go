// SPDX-License-Identifier: Apache-2.0

package servicemail_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// The members who can fix a webhook get one mail when it is disabled.
func TestDisabledWebhookIsTold(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
		defer receiver.Close()
		var hook struct{ ID string }
		var box struct{ ID, Address, Password string }
		s.API("POST", "/webhooks", map[string]any{"url": receiver.URL + "/hook?shop=1", "events": []string{"mailbox_created"}}).Decode(t, &hook)
		user, _, _ := strings.Cut(s.Dev.Dashboard.Email, "@")
		s.API("POST", "/mailboxes", map[string]any{"domain_id": s.Dev.Domain.ID, "local_part": user}).Decode(t, &box)
		var got struct {
			Data []struct{ ID, Subject string }
		}
		servertest.Eventually(t, func() string {
			if s.API("GET", "/mailboxes/"+box.ID+"/messages", nil).Decode(t, &got); len(got.Data) == 0 {
				return "there is no mail"
			}
			return ""
		})
		c, err := imapclient.DialTLS(s.Addr("imaps"), &imapclient.Options{TLSConfig: s.TLS()}) // the API does not show it
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // the test is over with it
		if err := c.Login(box.Address, box.Password).Wait(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Select("INBOX", nil).Wait(); err != nil {
			t.Fatal(err)
		}
		whole := &imap.FetchItemBodySection{}
		read, err := c.Fetch(imap.SeqSetNum(1), &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{whole}}).Collect()
		if err != nil {
			t.Fatal(err)
		}
		text := string(read[0].FindBodySection(whole))
		if len(got.Data) != 1 || got.Data[0].Subject != "A webhook was disabled" {
			t.Errorf("the mail is %v", got.Data)
		}
		for _, want := range []string{receiver.URL + "/hook?shop=1", "410", s.Dev.BaseURL + "/webhooks/" + hook.ID} {
			if !strings.Contains(text, want) {
				t.Errorf("it does not say %s:\n%s", want, text)
			}
		}
	})
}
