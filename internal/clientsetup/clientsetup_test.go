// SPDX-License-Identifier: Apache-2.0

package clientsetup_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/xml"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/micromdm/plist"
	"github.com/smallstep/pkcs7"

	"github.com/mailstead/mailstead/internal/clientsetup"
)

func service() *clientsetup.Service {
	return &clientsetup.Service{Host: "mail.host.example", IMAPS: 993, IMAP: 143, Submissions: 465, Submission: 587, BaseURL: "https://mail.host.example"}
}

func signing(c *tls.Certificate) *clientsetup.Service {
	s := service()
	s.Signer = func(context.Context) (*tls.Certificate, error) { return c, nil }
	return s
}

// texts returns the texts of an XML document with their paths.
func texts(t *testing.T, doc []byte) (all []string) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(doc))
	var at []string
	for {
		token, err := d.Token()
		if err != nil {
			if len(at) > 0 {
				t.Fatal(err)
			}
			return all
		}
		switch v := token.(type) {
		case xml.StartElement:
			name := v.Name.Local
			for _, a := range v.Attr {
				if a.Name.Local == "type" {
					name += ":" + a.Value
				}
			}
			at = append(at, name)
		case xml.EndElement:
			at = at[:len(at)-1]
		case xml.CharData:
			if text := strings.TrimSpace(string(v)); text != "" {
				all = append(all, strings.Join(at[max(0, len(at)-2):], "/")+"="+text)
			}
		}
	}
}

func expect(t *testing.T, got []string, want string) {
	t.Helper()
	if lines := strings.Fields(want); !reflect.DeepEqual(got, lines) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

// In order of preference: implicit TLS first.
func TestAutoconfig(t *testing.T) {
	for address, username := range map[string]string{"": "%EMAILADDRESS%", "a&b@shop.example": "a&b@shop.example"} {
		doc, err := service().Autoconfig("shop.example", address)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, texts(t, doc), strings.ReplaceAll(`emailProvider/domain=shop.example emailProvider/displayName=shop.example emailProvider/displayShortName=shop.example
			incomingServer:imap/hostname=mail.host.example incomingServer:imap/port=993 incomingServer:imap/socketType=SSL
			incomingServer:imap/authentication=password-cleartext incomingServer:imap/username=USER
			incomingServer:imap/hostname=mail.host.example incomingServer:imap/port=143 incomingServer:imap/socketType=STARTTLS
			incomingServer:imap/authentication=password-cleartext incomingServer:imap/username=USER
			outgoingServer:smtp/hostname=mail.host.example outgoingServer:smtp/port=465 outgoingServer:smtp/socketType=SSL
			outgoingServer:smtp/authentication=password-cleartext outgoingServer:smtp/username=USER
			outgoingServer:smtp/hostname=mail.host.example outgoingServer:smtp/port=587 outgoingServer:smtp/socketType=STARTTLS
			outgoingServer:smtp/authentication=password-cleartext outgoingServer:smtp/username=USER`, "USER", username))
		if !bytes.Contains(doc, []byte(`<clientConfig version="1.1">`)) || !bytes.Contains(doc, []byte(`<emailProvider id="shop.example">`)) {
			t.Errorf("%s", doc)
		}
	}
}

func TestAutodiscover(t *testing.T) {
	doc, err := service().Autodiscover("bob@shop.example")
	if err != nil {
		t.Fatal(err)
	}
	protocol := func(kind, port, encryption, more string) string {
		return " Protocol/Type=" + kind + " Protocol/Server=mail.host.example Protocol/Port=" + port + ` Protocol/DomainRequired=off
			Protocol/LoginName=bob@shop.example Protocol/SPA=off Protocol/SSL=on Protocol/Encryption=` + encryption + " Protocol/AuthRequired=on" + more
	}
	const smtp = " Protocol/UsePOPAuth=on Protocol/SMTPLast=off"
	expect(t, texts(t, doc), "User/DisplayName=bob@shop.example Account/AccountType=email Account/Action=settings"+
		protocol("IMAP", "993", "SSL", "")+protocol("IMAP", "143", "TLS", "")+protocol("SMTP", "465", "SSL", smtp)+protocol("SMTP", "587", "TLS", smtp))
	if !bytes.Contains(doc, []byte(`<Autodiscover xmlns="http://schemas.microsoft.com/exchange/autodiscover/responseschema/2006">`)) ||
		!bytes.Contains(doc, []byte(`<Response xmlns="http://schemas.microsoft.com/exchange/autodiscover/outlook/responseschema/2006a">`)) {
		t.Errorf("%s", doc)
	}
	if doc, err = clientsetup.AutodiscoverError(clientsetup.InvalidRequest, "No.", time.Unix(0, 0)); err != nil || !bytes.Contains(doc, []byte(`<Error Time="00:00:00.0000000" Id="1">`)) {
		t.Errorf("%s, %v", doc, err)
	}
	expect(t, texts(t, doc), "Error/ErrorCode=600 Error/Message=No.")
	if r, ok := service().AutodiscoverJSON("autodiscoverv1"); !ok || r.URL != "https://mail.host.example/autodiscover/autodiscover.xml" {
		t.Errorf("%+v, %v", r, ok)
	}
	if _, ok := service().AutodiscoverJSON("ActiveSync"); ok {
		t.Error("ActiveSync is not spoken here")
	}
}

const question = `<?xml version="1.0" encoding="utf-8"?>
<Autodiscover xmlns="http://schemas.microsoft.com/exchange/autodiscover/outlook/requestschema/2006">
  <Request>
    <EMailAddress>bob&amp;co@shop.example</EMailAddress>
    <AcceptableResponseSchema>http://schemas.microsoft.com/exchange/autodiscover/outlook/responseschema/2006a</AcceptableResponseSchema>
  </Request>
</Autodiscover>`

func TestReadQuestion(t *testing.T) {
	q, err := clientsetup.ReadAutodiscoverRequest(strings.NewReader(question))
	if err != nil || q.Address != "bob&co@shop.example" || !q.Supported() {
		t.Errorf("%+v, %v", q, err)
	}
	q, err = clientsetup.ReadAutodiscoverRequest(strings.NewReader(strings.ReplaceAll(question, "outlook/responseschema/2006a", "mobilesync/responseschema/2006")))
	if err != nil || q.Supported() {
		t.Errorf("a form of answer that is not given: %+v, %v", q, err)
	}
	for name, text := range map[string]string{
		"nothing":      "",
		"cut off":      question[:200],
		"no address":   strings.ReplaceAll(question, "EMailAddress", "LegacyDN"),
		"no XML":       `{"Email":"bob@shop.example"}`,
		"entities":     `<!DOCTYPE a [<!ENTITY b "c">]>` + question[39:],
		"deep":         strings.Repeat("<a>", 5000),
		"long":         "<Autodiscover><Request><EMailAddress>" + strings.Repeat("a", clientsetup.MaxAutodiscoverRequest),
		"other coding": strings.Replace(question, "utf-8", "utf-7", 1),
	} {
		if q, err := clientsetup.ReadAutodiscoverRequest(strings.NewReader(text)); err == nil {
			t.Errorf("%s: %+v", name, q)
		}
	}
}

func FuzzReadQuestion(f *testing.F) {
	f.Add([]byte(question))
	f.Add([]byte(`<Autodiscover><Request><EMailAddress>a@b</EMailAddress></Request></Autodiscover>`))
	f.Fuzz(func(t *testing.T, text []byte) {
		q, err := clientsetup.ReadAutodiscoverRequest(bytes.NewReader(text))
		if err == nil && (q.Address == "" || len(q.Address) > len(text)) {
			t.Errorf("%+v", q)
		}
	})
}

type payload struct {
	Content []map[string]any `plist:"PayloadContent"`
	ID      string           `plist:"PayloadIdentifier"`
	UUID    string           `plist:"PayloadUUID"`
	Type    string           `plist:"PayloadType"`
}

func TestProfile(t *testing.T) {
	text, err := service().AppleProfile(t.Context(), "bob@shop.example", `Bob <"&'> O’Hara`, "")
	if err != nil {
		t.Fatal(err)
	}
	var p payload
	if err := plist.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	if p.Type != "Configuration" || len(p.Content) != 1 || p.UUID == "" || !strings.HasPrefix(p.ID, "mailstead.") {
		t.Fatalf("%+v", p)
	}
	account := p.Content[0]
	for key, want := range map[string]any{
		"PayloadType": "com.apple.mail.managed", "PayloadVersion": uint64(1), "EmailAccountType": "EmailTypeIMAP", "EmailAddress": "bob@shop.example",
		"EmailAccountName": `Bob <"&'> O’Hara`, "IncomingMailServerHostName": "mail.host.example", "IncomingMailServerPortNumber": uint64(993),
		"IncomingMailServerUseSSL": true, "IncomingMailServerAuthentication": "EmailAuthPassword", "IncomingMailServerUsername": "bob@shop.example",
		"OutgoingMailServerHostName": "mail.host.example", "OutgoingMailServerPortNumber": uint64(465), "OutgoingMailServerUseSSL": true,
		"OutgoingMailServerAuthentication": "EmailAuthPassword", "OutgoingMailServerUsername": "bob@shop.example", "OutgoingPasswordSameAsIncomingPassword": true,
	} {
		if got := account[key]; got != want {
			t.Errorf("%s is %v (%T), not %v", key, got, got, want)
		}
	}
	if _, ok := account["IncomingPassword"]; ok {
		t.Error("there is a password")
	}
	again, err := service().AppleProfile(t.Context(), "bob@shop.example", `Bob <"&'> O’Hara`, "")
	if err != nil || !bytes.Equal(again, text) {
		t.Errorf("the second is another one: %v", err)
	}
	var other payload
	if text, err = service().AppleProfile(t.Context(), "eve@shop.example", "", "s<cret"); err == nil {
		err = plist.Unmarshal(text, &other)
	}
	if err != nil || other.UUID == p.UUID || other.Content[0]["PayloadUUID"] == account["PayloadUUID"] || other.Content[0]["IncomingPassword"] != "s<cret" {
		t.Errorf("another's: %+v, %v", other, err)
	}
}

func TestProfileSigned(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mail.host.example"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, authority, authority, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pair := &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
	plain, err := service().AppleProfile(t.Context(), "bob@shop.example", "Bob", "app-password-1")
	if err != nil || !bytes.Contains(plain, []byte("app-password-1")) {
		t.Fatal(err)
	}
	signed, err := signing(pair).AppleProfile(t.Context(), "bob@shop.example", "Bob", "app-password-1")
	if err != nil {
		t.Fatal(err)
	}
	message, err := pkcs7.Parse(signed)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	c, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(c)
	if err := message.VerifyWithChain(roots); err != nil || !bytes.Equal(message.Content, plain) {
		t.Errorf("the signature: %v", err)
	}
	if _, err := signing(&tls.Certificate{}).AppleProfile(t.Context(), "bob@shop.example", "", ""); err == nil {
		t.Error("signed with nothing")
	}
}
