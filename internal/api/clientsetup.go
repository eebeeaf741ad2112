// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/tls"
	"net/url"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/clientsetup"
	"github.com/mailstead/mailstead/internal/mailbox"
)

type endpointAnswer struct {
	Host     string `json:"host" doc:"The server's name." example:"mail.example.com"`
	Port     int    `json:"port" doc:"Its port." example:"993"`
	Security string `json:"security" enum:"tls,starttls" doc:"TLS from the first byte, or STARTTLS before signing in."`
}

type clientSetupAnswer struct {
	Email        string           `json:"email" doc:"The address of the mailbox." example:"ann@example.com"`
	DisplayName  string           `json:"display_name" doc:"The person's name." example:"Ann Lee"`
	Username     string           `json:"username" doc:"To sign in with, in both directions; the password is the mailbox's." example:"ann@example.com"`
	IMAP         []endpointAnswer `json:"imap" doc:"For reading; the first is to be preferred."`
	SMTP         []endpointAnswer `json:"smtp" doc:"For sending; the first is to be preferred."`
	Autoconfig   string           `json:"autoconfig_url" format:"uri" doc:"What Thunderbird and others read."`
	Autodiscover string           `json:"autodiscover_url" format:"uri" doc:"Where Outlook asks."`
	Profile      string           `json:"apple_profile_url" format:"uri" doc:"The profile for iPhone, iPad and Mac; it needs an API key."`
}

func (a *API) setupRoutes(r *router) {
	handle(r, operation{method: "GET", path: "/mailboxes/{id}/client-setup", id: "getClientSetup", scope: "mailboxes.read",
		summary: "Show how a mail client reaches a mailbox", description: "Servers, ports and the user name for IMAP and SMTP, and where programs find them by themselves."}, a.clientSetup)
	handle(r, operation{method: "GET", path: "/mailboxes/{id}/apple-profile", id: "getAppleProfile", scope: "mailboxes.read", media: "application/x-apple-aspen-config",
		summary: "A profile that sets up Apple's mail clients", description: "A .mobileconfig without the password, which the device asks for. It is signed if the service has a certificate of a public authority. " +
			"Installed again it replaces the former one."}, a.appleProfile)
}

// setupOf finds the mailbox that a request is about.
func (a *API) setupOf(ctx context.Context, p account.Principal, in *one) (mailbox.Mailbox, error) {
	id, err := a.mailboxID(ctx, p, in)
	if err != nil {
		return mailbox.Mailbox{}, err
	}
	return a.Mailboxes.Get(ctx, p.Account, id)
}

func (a *API) clientSetup(ctx context.Context, p account.Principal, in *one) (clientSetupAnswer, error) {
	m, err := a.setupOf(ctx, p, in)
	if err != nil {
		return clientSetupAnswer{}, err
	}
	s := a.Setup.For(m.Address, m.DisplayName)
	show := func(all []clientsetup.Endpoint) (list []endpointAnswer) {
		for _, e := range all {
			list = append(list, endpointAnswer{e.Host, int(e.Port), e.Security})
		}
		return list
	}
	return clientSetupAnswer{
		Email: s.Address, DisplayName: s.Name, Username: s.Username, IMAP: show(s.Incoming), SMTP: show(s.Outgoing),
		Autoconfig:   a.Setup.Base + "/.well-known/autoconfig/mail/config-v1.1.xml?" + url.Values{"emailaddress": {m.Address}}.Encode(),
		Autodiscover: a.Setup.Base + "/autodiscover/autodiscover.xml",
		Profile:      a.Setup.Base + "/api/v1/mailboxes/" + m.ID.String() + "/apple-profile",
	}, nil
}

func (a *API) appleProfile(ctx context.Context, p account.Principal, in *one) ([]byte, error) {
	m, err := a.setupOf(ctx, p, in)
	if err != nil {
		return nil, err
	}
	var signer *tls.Certificate
	if a.Signer != nil {
		if signer, err = a.Signer(ctx); err != nil {
			// A profile works without; the device says that it is not signed.
			a.Log.WarnContext(ctx, "signing a profile", "mailbox", m.ID, "error", err)
			signer = nil
		}
	}
	return a.Setup.Profile(m.Address, m.DisplayName, "", signer)
}
