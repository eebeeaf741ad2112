// SPDX-License-Identifier: Apache-2.0

package clientsetup

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/micromdm/plist"
	"github.com/smallstep/pkcs7"
)

// profile is Apple's Configuration payload (Device Management, TopLevel).
type profile struct {
	Content      []mailPayload `plist:"PayloadContent"`
	Description  string        `plist:"PayloadDescription"`
	Name         string        `plist:"PayloadDisplayName"`
	Identifier   string        `plist:"PayloadIdentifier"`
	Organization string        `plist:"PayloadOrganization"`
	Removal      bool          `plist:"PayloadRemovalDisallowed"`
	Type         string        `plist:"PayloadType"`
	UUID         string        `plist:"PayloadUUID"`
	Version      int           `plist:"PayloadVersion"`
}

// mailPayload is com.apple.mail.managed.
type mailPayload struct {
	AccountDescription string `plist:"EmailAccountDescription"`
	AccountName        string `plist:"EmailAccountName,omitempty"`
	AccountType        string `plist:"EmailAccountType"`
	Address            string `plist:"EmailAddress"`

	IncomingAuthentication string `plist:"IncomingMailServerAuthentication"`
	IncomingHost           string `plist:"IncomingMailServerHostName"`
	IncomingPort           int    `plist:"IncomingMailServerPortNumber"`
	IncomingTLS            bool   `plist:"IncomingMailServerUseSSL"`
	IncomingUsername       string `plist:"IncomingMailServerUsername"`
	IncomingPassword       string `plist:"IncomingPassword,omitempty"`

	OutgoingAuthentication string `plist:"OutgoingMailServerAuthentication"`
	OutgoingHost           string `plist:"OutgoingMailServerHostName"`
	OutgoingPort           int    `plist:"OutgoingMailServerPortNumber"`
	OutgoingTLS            bool   `plist:"OutgoingMailServerUseSSL"`
	OutgoingUsername       string `plist:"OutgoingMailServerUsername"`
	SamePassword           bool   `plist:"OutgoingPasswordSameAsIncomingPassword"`

	Description string `plist:"PayloadDescription"`
	Name        string `plist:"PayloadDisplayName"`
	Identifier  string `plist:"PayloadIdentifier"`
	Type        string `plist:"PayloadType"`
	UUID        string `plist:"PayloadUUID"`
	Version     int    `plist:"PayloadVersion"`
}

// AppleProfile returns an address's configuration profile for Apple's clients (.mobileconfig). Its
// UUIDs depend on host and address, so that a profile replaces the previous one. It includes a
// password if given; otherwise the device asks for it. If there is a certificate, the profile is
// signed as CMS with its chain.
func (s *Service) AppleProfile(ctx context.Context, address, name, password string) ([]byte, error) {
	settings := s.Settings(address, name)
	in, out := settings.Incoming[0], settings.Outgoing[0]
	id := func(what string) string {
		return uuid.NewSHA1(uuid.NameSpaceURL, []byte("imap://"+s.Host+"/"+address+"#"+what)).String()
	}
	whole, account := id("profile"), id("account")
	const byPassword = "EmailAuthPassword"
	text, err := plist.MarshalIndent(&profile{
		Content: []mailPayload{{
			AccountDescription: address, AccountName: name, AccountType: "EmailTypeIMAP", Address: address,
			IncomingAuthentication: byPassword, IncomingHost: in.Host, IncomingPort: int(in.Port), IncomingTLS: true,
			IncomingUsername: settings.Username, IncomingPassword: password,
			OutgoingAuthentication: byPassword, OutgoingHost: out.Host, OutgoingPort: int(out.Port), OutgoingTLS: true,
			OutgoingUsername: settings.Username, SamePassword: true,
			Description: "Mail of " + address, Name: address, Identifier: "mailstead." + whole + "." + account,
			Type: "com.apple.mail.managed", UUID: account, Version: 1,
		}},
		Description: "Sets up mail for " + address + ".", Name: "Mail: " + address, Identifier: "mailstead." + whole,
		Organization: s.Host, Type: "Configuration", UUID: whole, Version: 1,
	}, "  ")
	if err != nil || s.Signer == nil {
		return text, err
	}
	signer, err := s.Signer(ctx)
	if err != nil {
		// An unsigned profile works; the device says that it is not signed.
		s.Log.WarnContext(ctx, "signing a profile", "mailbox", address, "error", err)
		signer = nil
	}
	if signer == nil {
		return text, nil
	}
	return signProfile(text, signer)
}

func signProfile(text []byte, with *tls.Certificate) ([]byte, error) {
	signed, err := pkcs7.NewSignedData(text)
	if err != nil {
		return nil, err
	}
	signed.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	var chain []*x509.Certificate
	for _, raw := range with.Certificate {
		c, err := x509.ParseCertificate(raw)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate to sign with: %w", err)
		}
		chain = append(chain, c)
	}
	if len(chain) == 0 {
		return nil, errors.New("there is no certificate to sign with")
	}
	if err := signed.AddSignerChain(chain[0], with.PrivateKey, chain[1:], pkcs7.SignerInfoConfig{}); err != nil {
		return nil, err
	}
	return signed.Finish()
}
