// SPDX-License-Identifier: Apache-2.0

// Package servicemail writes e-mail of the service to the members of an account, when they have to
// act. Mail with links to sign in belongs to package user.
package servicemail

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/internal/user"
	"github.com/mailstead/mailstead/internal/webhook"
)

// Sender sends service mail to members of accounts.
type Sender struct {
	Users   *user.Users
	BaseURL string // base URL of the dashboard's pages, without a trailing slash
}

// SendWebhookDisabled sends mail to the members of an account who can fix a disabled webhook. If a
// mail fails, it still sends the others, and returns all errors.
func (s *Sender) SendWebhookDisabled(ctx context.Context, w webhook.Webhook) error {
	members, err := s.Users.Members(ctx, w.Account)
	if err != nil {
		return err
	}
	text := webhookDisabledText(w, s.BaseURL)
	for _, m := range members {
		if m.Role == user.RoleReader {
			continue
		}
		err = errors.Join(err, s.Users.Notify(ctx, m.User, "A webhook was disabled", text))
	}
	return err
}

func webhookDisabledText(w webhook.Webhook, baseURL string) string {
	why := "it answered 410 Gone, which asks for no more"
	if w.Reason == webhook.ReasonFailing {
		why = "every attempt failed since " + w.FailingSince.UTC().Format("2006-01-02 15:04 UTC")
	}
	return fmt.Sprintf(`Events are no longer sent to this webhook:

%s

It was disabled because %s. What happens from now on is not sent there.

When the receiver works again, enable the webhook. What waited then goes on,
and a replay sends what happened meanwhile:

%s/webhooks/%s
`, w.URL, why, baseURL, w.ID)
}
