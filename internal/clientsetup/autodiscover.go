// SPDX-License-Identifier: Apache-2.0

package clientsetup

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"time"
)

const (
	// MaxAutodiscoverRequest is the limit for an Autodiscover request, in bytes.
	MaxAutodiscoverRequest = 16 << 10

	outlookSchema  = "http://schemas.microsoft.com/exchange/autodiscover/outlook/responseschema/2006a"
	responseSchema = "http://schemas.microsoft.com/exchange/autodiscover/responseschema/2006"
)

// Error codes of a response without settings (MS-OXDSCLI §2.2.4.1.1.2.2).
const (
	NoSuchAddress     = 500 // also for domains not hosted here
	InvalidRequest    = 600
	UnsupportedSchema = 601
)

// AutodiscoverRequest is a request from Outlook.
type AutodiscoverRequest struct {
	Address string
	Schema  string // response schema that the client accepts
}

var errInvalidRequest = errors.New("no request of Autodiscover")

// ReadAutodiscoverRequest parses a request (MS-OXDSCLI §2.2.3.1.1). It reads at most
// MaxAutodiscoverRequest bytes, and rejects document types and all entities except XML's own.
func ReadAutodiscoverRequest(r io.Reader) (q AutodiscoverRequest, err error) {
	d := xml.NewDecoder(io.LimitReader(r, MaxAutodiscoverRequest))
	var at []string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && q.Address != "" {
			return q, nil
		}
		if err != nil {
			return AutodiscoverRequest{}, errInvalidRequest
		}
		switch t := token.(type) {
		case xml.Directive:
			return AutodiscoverRequest{}, errInvalidRequest
		case xml.StartElement:
			if at = append(at, t.Name.Local); len(at) > 8 {
				return AutodiscoverRequest{}, errInvalidRequest
			}
		case xml.EndElement:
			at = at[:len(at)-1]
		case xml.CharData:
			switch text := strings.TrimSpace(string(t)); strings.Join(at, "/") {
			case "Autodiscover/Request/EMailAddress":
				q.Address += text
			case "Autodiscover/Request/AcceptableResponseSchema":
				q.Schema += text
			}
		}
	}
}

// Supported reports whether the client accepts the response schema.
func (q AutodiscoverRequest) Supported() bool { return q.Schema == "" || q.Schema == outlookSchema }

type autodiscoverResponse struct {
	XMLName   xml.Name `xml:"Autodiscover"`
	Namespace string   `xml:"xmlns,attr"`
	Response  any      `xml:"Response"`
}

type outlookSettings struct {
	Namespace string `xml:"xmlns,attr"`
	Name      string `xml:"User>DisplayName"`
	Account   struct {
		Type     string            `xml:"AccountType"`
		Action   string            `xml:"Action"`
		Protocol []outlookProtocol `xml:"Protocol"`
	} `xml:"Account"`
}

type outlookProtocol struct {
	Type           string `xml:"Type"`
	Server         string `xml:"Server"`
	Port           uint16 `xml:"Port"`
	DomainRequired string `xml:"DomainRequired"`
	LoginName      string `xml:"LoginName"`
	SPA            string `xml:"SPA"`
	SSL            string `xml:"SSL"`
	Encryption     string `xml:"Encryption"`
	AuthRequired   string `xml:"AuthRequired"`
	UsePOPAuth     string `xml:"UsePOPAuth,omitempty"`
	SMTPLast       string `xml:"SMTPLast,omitempty"`
}

// Autodiscover returns the settings of an address for Outlook, preferred endpoints first
// (MS-OXDSCLI §2.2.4).
func (s *Service) Autodiscover(address string) ([]byte, error) {
	settings := s.Settings(address, address)
	answer := outlookSettings{Namespace: outlookSchema, Name: settings.Name}
	answer.Account.Type, answer.Account.Action = "email", "settings"
	add := func(kind string, all []Endpoint) {
		for _, e := range all {
			p := outlookProtocol{
				Type: kind, Server: e.Host, Port: e.Port, DomainRequired: "off", LoginName: settings.Username, SPA: "off",
				SSL: "on", Encryption: "SSL", AuthRequired: "on",
			}
			if e.Security == STARTTLS {
				p.Encryption = "TLS" // Outlook's word for STARTTLS
			}
			if kind == "SMTP" {
				p.UsePOPAuth, p.SMTPLast = "on", "off"
			}
			answer.Account.Protocol = append(answer.Account.Protocol, p)
		}
	}
	add("IMAP", settings.Incoming)
	add("SMTP", settings.Outgoing)
	return marshalXML(autodiscoverResponse{Namespace: responseSchema, Response: answer})
}

type outlookError struct {
	Error struct {
		Time    string `xml:"Time,attr"`
		ID      string `xml:"Id,attr"`
		Code    int    `xml:"ErrorCode"`
		Message string `xml:"Message"`
		Debug   string `xml:"DebugData"`
	} `xml:"Error"`
}

// AutodiscoverError returns a response without settings for Outlook.
func AutodiscoverError(code int, words string, at time.Time) ([]byte, error) {
	var answer outlookError
	e := &answer.Error
	e.Time, e.ID, e.Code, e.Message = at.UTC().Format("15:04:05.0000000"), "1", code, words
	return marshalXML(autodiscoverResponse{Namespace: responseSchema, Response: answer})
}

// AutodiscoverRedirect is the response of Autodiscover version 2: the URL of version 1.
type AutodiscoverRedirect struct {
	Protocol string `json:"Protocol"`
	URL      string `json:"Url"`
}

// AutodiscoverJSON returns the response of version 2. ok is false for an unsupported protocol.
func (s *Service) AutodiscoverJSON(protocol string) (AutodiscoverRedirect, bool) {
	if !strings.EqualFold(protocol, "AutodiscoverV1") {
		return AutodiscoverRedirect{}, false
	}
	return AutodiscoverRedirect{Protocol: "AutodiscoverV1", URL: s.BaseURL + "/autodiscover/autodiscover.xml"}, true
}
