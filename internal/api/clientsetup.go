// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/url"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/clientsetup"
	"github.com/mailstead/mailstead/internal/mailbox"
)

type endpointResponse struct {
	Host     string `json:"host" doc:"The server's name." example:"mail.example.com"`
	Port     int    `json:"port" doc:"Its port." example:"993"`
	Security string `json:"security" enum:"tls,starttls" doc:"TLS from the first byte, or STARTTLS before signing in."`
}

type clientSetupResponse struct {
	Email           string             `json:"email" doc:"The address of the mailbox." example:"ann@example.com"`
	DisplayName     string             `json:"display_name" doc:"The person's name." example:"Ann Lee"`
	Username        string             `json:"username" doc:"To sign in with, in both directions; the password is the mailbox's." example:"ann@example.com"`
	IMAP            []endpointResponse `json:"imap" doc:"For reading; the first is to be preferred."`
	SMTP            []endpointResponse `json:"smtp" doc:"For sending; the first is to be preferred."`
	AutoconfigURL   string             `json:"autoconfig_url" format:"uri" doc:"What Thunderbird and others read."`
	AutodiscoverURL string             `json:"autodiscover_url" format:"uri" doc:"Where Outlook asks."`
	AppleProfileURL string             `json:"apple_profile_url" format:"uri" doc:"The profile for iPhone, iPad and Mac; it needs an API key."`
}

func (a *API) clientSetupRoutes(r *router) {
	handle(r, operation{method: "GET", path: "/mailboxes/{id}/client-setup", id: "getClientSetup", scope: "mailboxes.read",
		summary: "Show how a mail client reaches a mailbox", description: "Servers, ports and the user name for IMAP and SMTP, and where programs find them by themselves."}, a.getClientSetup)
	handle(r, operation{method: "GET", path: "/mailboxes/{id}/apple-profile", id: "getAppleProfile", scope: "mailboxes.read", responseMedia: "application/x-apple-aspen-config",
		summary: "A profile that sets up Apple's mail clients", description: "A .mobileconfig without the password, which the device asks for. It is signed if the service has a certificate of a public authority. " +
			"Installed again it replaces the former one."}, a.getAppleProfile)
	handle(r, operation{method: "POST", path: "/mailboxes/{id}/apple-profile", id: "createAppleProfile", validatesFirst: true, scope: "mailboxes.write", responseMedia: "application/x-apple-aspen-config", mayConflict: true,
		summary: "A profile with an app password", description: "The same, with an app password that is made for the device: nothing is to be entered there. " +
			"The password is in the profile alone; it is listed by its name among the app passwords, and ends when it is revoked."}, a.createAppleProfile)
	handle(r, operation{method: "POST", path: "/mailboxes/{id}/client-setup/check", id: "checkClientSetup", readOnly: true, scope: "mailboxes.read",
		summary: "Check that the settings of a mailbox work", description: "The service connects to its own listeners for mail clients now, speaks TLS with each, and asks whether signing in with a password is offered. " +
			"Nobody is signed in. It takes 30 seconds at most; what went wrong stands in the answer, whose status is 200 nevertheless."}, a.checkClientSetup)
}

type setupCheckResponse struct {
	OK        bool                    `json:"ok" doc:"Whether all is well."`
	Listeners []listenerCheckResponse `json:"listeners" doc:"The listeners that were tried."`
}

type listenerCheckResponse struct {
	Protocol   string              `json:"protocol" enum:"imap,smtp" doc:"What is spoken there."`
	Host       string              `json:"host" doc:"The server's name." example:"mail.example.com"`
	Port       int                 `json:"port" doc:"Its port." example:"993"`
	Security   string              `json:"security" enum:"tls,starttls" doc:"TLS from the first byte, or STARTTLS before signing in."`
	OK         bool                `json:"ok" doc:"Whether a mail client could go on to sign in."`
	DurationMS float64             `json:"duration_ms" doc:"How long it took, in milliseconds." example:"12.5"`
	Steps      []setupStepResponse `json:"steps" doc:"How far it came; the last one alone may have failed."`
}

type setupStepResponse struct {
	Name   string `json:"name" enum:"connect,encrypt,offer" doc:"connect: there is an answer; encrypt: TLS, with a valid certificate; offer: signing in with a password is offered."`
	OK     bool   `json:"ok" doc:"Whether it is well."`
	Detail string `json:"detail" doc:"What was found, or what went wrong." example:"TLS 1.3, with a certificate that is valid until 31 Dec 2030."`
}

func (a *API) checkClientSetup(ctx context.Context, p account.Principal, in *idParams) (setupCheckResponse, error) {
	if _, err := a.mailbox(ctx, p, in); err != nil {
		return setupCheckResponse{}, err
	}
	trials, err := a.SetupChecker.Check(ctx)
	out := setupCheckResponse{OK: err == nil, Listeners: []listenerCheckResponse{}}
	for _, t := range trials {
		one := listenerCheckResponse{
			Protocol: strings.ToLower(t.Protocol), Host: t.Host, Port: int(t.Port), Security: t.Security,
			OK: t.OK(), DurationMS: float64(t.Duration.Microseconds()) / 1000, Steps: []setupStepResponse{},
		}
		for _, s := range t.Steps {
			one.Steps = append(one.Steps, setupStepResponse{strings.ToLower(s.Name), s.OK, s.Detail})
		}
		out.OK = out.OK && one.OK
		out.Listeners = append(out.Listeners, one)
	}
	return out, err
}

// mailbox returns the mailbox that the path names.
func (a *API) mailbox(ctx context.Context, p account.Principal, in *idParams) (mailbox.Mailbox, error) {
	id, err := a.mailboxID(ctx, p, in)
	if err != nil {
		return mailbox.Mailbox{}, err
	}
	return a.Mailboxes.Get(ctx, p.Account, id)
}

func (a *API) getClientSetup(ctx context.Context, p account.Principal, in *idParams) (clientSetupResponse, error) {
	m, err := a.mailbox(ctx, p, in)
	if err != nil {
		return clientSetupResponse{}, err
	}
	s := a.ClientSetup.Settings(m.Address, m.DisplayName)
	show := func(all []clientsetup.Endpoint) (list []endpointResponse) {
		for _, e := range all {
			list = append(list, endpointResponse{e.Host, int(e.Port), e.Security})
		}
		return list
	}
	return clientSetupResponse{
		Email: s.Address, DisplayName: s.Name, Username: s.Username, IMAP: show(s.Incoming), SMTP: show(s.Outgoing),
		AutoconfigURL:   a.ClientSetup.BaseURL + "/.well-known/autoconfig/mail/config-v1.1.xml?" + url.Values{"emailaddress": {m.Address}}.Encode(),
		AutodiscoverURL: a.ClientSetup.BaseURL + "/autodiscover/autodiscover.xml",
		AppleProfileURL: a.ClientSetup.BaseURL + "/api/v1/mailboxes/" + m.ID.String() + "/apple-profile",
	}, nil
}

func (a *API) getAppleProfile(ctx context.Context, p account.Principal, in *idParams) ([]byte, error) {
	m, err := a.mailbox(ctx, p, in)
	if err != nil {
		return nil, err
	}
	return a.ClientSetup.AppleProfile(ctx, m.Address, m.DisplayName, "")
}

type createAppleProfileRequest struct {
	Name string `json:"name" doc:"The device, in at most 100 bytes; the app password is called so." example:"Ann's phone"`
}

type createAppleProfileInput struct {
	idParams
	Body createAppleProfileRequest
}

func (a *API) createAppleProfile(ctx context.Context, p account.Principal, in *createAppleProfileInput) ([]byte, error) {
	m, err := a.mailbox(ctx, p, &in.idParams)
	if err != nil {
		return nil, err
	}
	_, password, err := a.Mailboxes.CreateAppPassword(ctx, p.Account, m.ID, in.Body.Name, []string{string(mailbox.IMAP), string(mailbox.SMTP)})
	if err != nil {
		return nil, err
	}
	return a.ClientSetup.AppleProfile(ctx, m.Address, m.DisplayName, password)
}
