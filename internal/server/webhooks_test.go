// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Who can mend a webhook is told by mail, once, that it was disabled.
func TestDisabledWebhookIsTold(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
		defer receiver.Close()
		var hook, box struct{ ID string }
		s.API("POST", "/webhooks", map[string]any{"url": receiver.URL + "/hook?shop=1", "events": []string{"mailbox_created"}}).Into(t, &hook)
		user, _, _ := strings.Cut(s.Dev.Dashboard.Email, "@")
		s.API("POST", "/mailboxes", map[string]any{"domain_id": s.Dev.Domain.ID, "local_part": user}).Into(t, &box)
		var got struct {
			Data []struct{ ID, Subject string }
		}
		servertest.Eventually(t, func() string {
			if s.API("GET", "/mailboxes/"+box.ID+"/messages", nil).Into(t, &got); len(got.Data) == 0 {
				return "there is no mail"
			}
			return ""
		})
		var mail struct{ Text string }
		s.API("GET", "/mailboxes/"+box.ID+"/messages/"+got.Data[0].ID, nil).Into(t, &mail)
		if len(got.Data) != 1 || got.Data[0].Subject != "A webhook was disabled" {
			t.Errorf("the mail is %v", got.Data)
		}
		for _, want := range []string{receiver.URL + "/hook?shop=1", "410", s.Dev.BaseURL + "/webhooks/" + hook.ID} {
			if !strings.Contains(mail.Text, want) {
				t.Errorf("it does not say %s:\n%s", want, mail.Text)
			}
		}
	})
}
