// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/tls"
	"net/url"
	"strings"

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
	handle(r, operation{method: "POST", path: "/mailboxes/{id}/apple-profile", id: "createAppleProfile", checksFirst: true, scope: "mailboxes.write", media: "application/x-apple-aspen-config", conflicts: true,
		summary: "A profile with an app password", description: "The same, with an app password that is made for the device: nothing is to be entered there. " +
			"The password is in the profile alone; it is listed by its name among the app passwords, and ends when it is revoked."}, a.createAppleProfile)
	handle(r, operation{method: "POST", path: "/mailboxes/{id}/client-setup/check", id: "checkClientSetup", scope: "mailboxes.read",
		summary: "Check that the settings of a mailbox work", description: "The service connects to its own doors for mail clients now, speaks TLS with each, and asks whether signing in with a password is offered. " +
			"Nobody is signed in. It takes 30 seconds at most; what went wrong stands in the answer, whose status is 200 nevertheless."}, a.checkSetup)
}

type setupCheckAnswer struct {
	OK    bool         `json:"ok" doc:"Whether all is well."`
	Doors []doorAnswer `json:"doors" nullable:"false" doc:"The doors that were tried."`
}

type doorAnswer struct {
	Protocol   string       `json:"protocol" enum:"imap,smtp" doc:"What is spoken there."`
	Host       string       `json:"host" doc:"The server's name." example:"mail.example.com"`
	Port       int          `json:"port" doc:"Its port." example:"993"`
	Security   string       `json:"security" enum:"tls,starttls" doc:"TLS from the first byte, or STARTTLS before signing in."`
	OK         bool         `json:"ok" doc:"Whether a mail client could go on to sign in."`
	DurationMS float64      `json:"duration_ms" doc:"How long it took, in milliseconds." example:"12.5"`
	Steps      []stepAnswer `json:"steps" nullable:"false" doc:"How far it came; the last one alone may have failed."`
}

type stepAnswer struct {
	Name   string `json:"name" enum:"connect,encrypt,offer" doc:"connect: there is an answer; encrypt: TLS, with a valid certificate; offer: signing in with a password is offered."`
	OK     bool   `json:"ok" doc:"Whether it is well."`
	Detail string `json:"detail" doc:"What was found, or what went wrong." example:"TLS 1.3, with a certificate that is valid until 31 Dec 2030."`
}

func (a *API) checkSetup(ctx context.Context, p account.Principal, in *one) (setupCheckAnswer, error) {
	if _, err := a.setupOf(ctx, p, in); err != nil {
		return setupCheckAnswer{}, err
	}
	trials, err := a.Checker.Check(ctx)
	out := setupCheckAnswer{OK: err == nil, Doors: []doorAnswer{}}
	for _, t := range trials {
		one := doorAnswer{
			Protocol: strings.ToLower(t.Protocol), Host: t.Host, Port: int(t.Port), Security: t.Security,
			OK: t.OK(), DurationMS: float64(t.Took.Microseconds()) / 1000, Steps: []stepAnswer{},
		}
		for _, s := range t.Steps {
			one.Steps = append(one.Steps, stepAnswer{strings.ToLower(s.Name), s.OK, s.Words})
		}
		out.OK = out.OK && one.OK
		out.Doors = append(out.Doors, one)
	}
	return out, err
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
	return a.profileOf(ctx, m, "")
}

type createAppleProfileRequest struct {
	Name string `json:"name" doc:"The device, in at most 100 bytes; the app password is called so." example:"Ann's phone"`
}

type createAppleProfileInput struct {
	one
	Body createAppleProfileRequest
}

func (a *API) createAppleProfile(ctx context.Context, p account.Principal, in *createAppleProfileInput) ([]byte, error) {
	m, err := a.setupOf(ctx, p, &in.one)
	if err != nil {
		return nil, err
	}
	_, password, err := a.Mailboxes.CreateAppPassword(ctx, p.Account, m.ID, in.Body.Name, []string{string(mailbox.IMAP), string(mailbox.SMTP)})
	if err != nil {
		return nil, err
	}
	return a.profileOf(ctx, m, password)
}

// profileOf makes a profile, with a password unless it is "".
func (a *API) profileOf(ctx context.Context, m mailbox.Mailbox, password string) ([]byte, error) {
	var signer *tls.Certificate
	if a.Signer != nil {
		var err error
		if signer, err = a.Signer(ctx); err != nil {
			// A profile works without; the device says that it is not signed.
			a.Log.WarnContext(ctx, "signing a profile", "mailbox", m.ID, "error", err)
			signer = nil
		}
	}
	return a.Setup.Profile(m.Address, m.DisplayName, password, signer)
}
