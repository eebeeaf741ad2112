// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bytes"
	"crypto/tls"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/smtp"
	"strconv"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/micromdm/plist"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// place is a server as a client parsed it.
type place struct {
	host       string
	port       int
	tls, begin bool // implicit TLS, or STARTTLS
	user       string
}

// asThunderbird parses a configuration file by its published rules: servers in order, each with a
// type, a host name, a port, a known kind of socket and authentication, and a user name with
// variables.
func asThunderbird(t *testing.T, doc []byte, address string) (in, out []place) {
	t.Helper()
	type server struct {
		Type   string `xml:"type,attr"`
		Host   string `xml:"hostname"`
		Port   int    `xml:"port"`
		Socket string `xml:"socketType"`
		Auth   string `xml:"authentication"`
		User   string `xml:"username"`
	}
	var c struct {
		XMLName  xml.Name `xml:"clientConfig"`
		Provider struct {
			Domain   []string `xml:"domain"`
			Incoming []server `xml:"incomingServer"`
			Outgoing []server `xml:"outgoingServer"`
		} `xml:"emailProvider"`
	}
	if err := xml.Unmarshal(doc, &c); err != nil {
		t.Fatalf("%v in %s", err, doc)
	}
	local, domain, _ := strings.Cut(address, "@")
	if len(c.Provider.Domain) != 1 || c.Provider.Domain[0] != domain {
		t.Errorf("for %q", c.Provider.Domain)
	}
	read := func(all []server, kind string) (list []place) {
		for _, s := range all {
			if s.Type != kind || s.Host == "" || s.Port < 1 || s.Port > 65535 || s.Auth != "password-cleartext" || s.Socket != "SSL" && s.Socket != "STARTTLS" {
				t.Errorf("a server %+v", s)
			}
			user := strings.NewReplacer("%EMAILADDRESS%", address, "%EMAILLOCALPART%", local, "%EMAILDOMAIN%", domain).Replace(s.User)
			list = append(list, place{host: s.Host, port: s.Port, tls: s.Socket == "SSL", begin: s.Socket == "STARTTLS", user: user})
		}
		return list
	}
	return read(c.Provider.Incoming, "imap"), read(c.Provider.Outgoing, "smtp")
}

// signIn signs in with the parsed settings.
func signIn(t *testing.T, s *servertest.Server, in, out []place, password string) {
	t.Helper()
	if len(in) == 0 || len(out) == 0 {
		t.Fatalf("nothing to connect to: %v, %v", in, out)
	}
	for _, p := range in {
		dial := imapclient.DialStartTLS
		if p.tls {
			dial = imapclient.DialTLS
		}
		c, err := dial(fmt.Sprintf("%s:%d", p.host, p.port), &imapclient.Options{TLSConfig: s.TLS()})
		if err != nil {
			t.Errorf("%+v: %v", p, err)
			continue
		}
		if err := c.Login(p.user, password).Wait(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
		_ = c.Close()
	}
	for _, p := range out {
		if err := submit(s, p, password); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func submit(s *servertest.Server, p place, password string) error {
	dial := net.Dial
	if p.tls {
		dial = func(network, addr string) (net.Conn, error) { return tls.Dial(network, addr, s.TLS()) }
	}
	nc, err := dial("tcp", net.JoinHostPort(p.host, strconv.Itoa(p.port)))
	if err != nil {
		return err
	}
	c, err := smtp.NewClient(nc, p.host)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing is sent
	if p.begin {
		if err := c.StartTLS(s.TLS()); err != nil {
			return err
		}
	}
	return c.Auth(smtp.PlainAuth("", p.user, password, p.host))
}

// get makes a request to the HTTP listener with another host name.
func get(t *testing.T, s *servertest.Server, host, path string) (int, string, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr("http")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	return fetch(t, r)
}

func fetch(t *testing.T, r *http.Request) (int, string, []byte) {
	t.Helper()
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close() //nolint:errcheck // read whole
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, a.Header.Get("Content-Type"), text
}

func TestThunderbirdSetsItselfUp(t *testing.T) {
	s := servertest.Start(t)
	box := s.Dev.Mailboxes[0]
	_, domain, _ := strings.Cut(box.Address, "@")
	for _, ask := range []struct{ host, path string }{
		{"localhost", "/mail/config-v1.1.xml?emailaddress=" + box.Address},
		{"autoconfig." + domain, "/mail/config-v1.1.xml?emailaddress=" + box.Address},
		{"autoconfig." + domain + ":80", "/mail/config-v1.1.xml"},
		{"localhost", "/.well-known/autoconfig/mail/config-v1.1.xml?emailaddress=" + box.Address},
		{domain, "/.well-known/autoconfig/mail/config-v1.1.xml"},
		{"autoconfig." + domain, "/mail/config-v1.1.xml?emailaddress="},
		{domain, "/mail/config-v1.1.xml?x=1&emailaddress=%25EMAILADDRESS%25"},
	} {
		code, kind, doc := get(t, s, ask.host, ask.path)
		if code != 200 || kind != "application/xml; charset=utf-8" {
			t.Errorf("%v: %d %s %s", ask, code, kind, doc)
			continue
		}
		in, out := asThunderbird(t, doc, box.Address)
		if len(in) != 2 || !in[0].tls || !in[1].begin || len(out) != 2 || !out[0].tls || !out[1].begin {
			t.Errorf("%v: %+v, %+v", ask, in, out)
		}
		signIn(t, s, in, out, box.Password)
	}
	// Without an address the client inserts that of its user.
	for _, ask := range []string{"", "?emailaddress=", "?emailaddress", "?emailaddress=%25EMAILADDRESS%25"} {
		if code, _, doc := get(t, s, domain, "/mail/config-v1.1.xml"+ask); code != 200 || bytes.Contains(doc, []byte("anybody")) || !bytes.Contains(doc, []byte("<username>%EMAILADDRESS%</username>")) {
			t.Errorf("%q: %d %s", ask, code, doc)
		}
	}
	// A plus sign is literal, escaped or not.
	for _, plus := range []string{"ann+lists", "ann%2Blists", "ann%2blists"} {
		if code, _, doc := get(t, s, "localhost", "/mail/config-v1.1.xml?emailaddress="+plus+"@"+domain); code != 200 || !bytes.Contains(doc, []byte("<username>ann+lists@"+domain+"</username>")) {
			t.Errorf("%s: %d %s", plus, code, doc)
		}
	}
	// The response doesn't reveal whether an address exists.
	_, _, one := get(t, s, "localhost", "/mail/config-v1.1.xml?emailaddress="+box.Address)
	code, _, other := get(t, s, "localhost", "/mail/config-v1.1.xml?emailaddress=nobody@"+domain)
	if code != 200 || !bytes.Equal(bytes.ReplaceAll(one, []byte(box.Address), []byte("nobody@"+domain)), other) {
		t.Errorf("for nobody: %d %s", code, other)
	}
	for _, bad := range []string{"", "?emailaddress=", "?emailaddress=ann@elsewhere.example", "?emailaddress=%00@" + domain, "?emailaddress=a%0d%0ab@" + domain, "?emailaddress=" + strings.Repeat("a", 5000) + "@" + domain} {
		if code, kind, text := get(t, s, "elsewhere.example", "/mail/config-v1.1.xml"+bad); code != 404 || kind != "application/problem+json" || bytes.Contains(text, []byte("elsewhere")) {
			t.Errorf("%.40s: %d %s %s", bad, code, kind, text)
		}
	}
}

func TestOutlookSetsItselfUp(t *testing.T) {
	s := servertest.Start(t)
	box := s.Dev.Mailboxes[0]
	_, domain, _ := strings.Cut(box.Address, "@")
	ask := func(path, address string) []byte {
		t.Helper()
		question := `<?xml version="1.0"?><Autodiscover xmlns="http://schemas.microsoft.com/exchange/autodiscover/outlook/requestschema/2006"><Request><EMailAddress>` +
			address + `</EMailAddress><AcceptableResponseSchema>http://schemas.microsoft.com/exchange/autodiscover/outlook/responseschema/2006a</AcceptableResponseSchema></Request></Autodiscover>`
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Addr("http")+path, strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		code, kind, doc := fetch(t, r)
		if code != 200 || kind != "text/xml; charset=utf-8" {
			t.Fatalf("%s: %d %s %s", path, code, kind, doc)
		}
		return doc
	}
	for _, path := range []string{"/autodiscover/autodiscover.xml", "/Autodiscover/Autodiscover.xml", "/AutoDiscover/AutoDiscover.xml", "/AUTODISCOVER/autodiscover.XML"} {
		var a struct {
			Protocol []struct {
				Type       string
				Server     string
				Port       int
				LoginName  string
				SSL        string
				Encryption string
			} `xml:"Response>Account>Protocol"`
		}
		if err := xml.Unmarshal(ask(path, box.Address), &a); err != nil {
			t.Fatal(err)
		}
		places := map[string][]place{}
		for _, p := range a.Protocol {
			places[p.Type] = append(places[p.Type], place{host: p.Server, port: p.Port, user: p.LoginName, tls: p.Encryption == "SSL" && p.SSL == "on", begin: p.Encryption == "TLS"})
		}
		signIn(t, s, places["IMAP"], places["SMTP"], box.Password)
	}
	for address, want := range map[string]string{"ann@elsewhere.example": "<ErrorCode>500<", "": "<ErrorCode>600<"} {
		if doc := ask("/autodiscover/autodiscover.xml", address); !bytes.Contains(doc, []byte(want)) {
			t.Errorf("%q: %s", address, doc)
		}
	}
	for path, want := range map[string]int{
		"/autodiscover/autodiscover.json?Protocol=AutodiscoverV1&Email=" + box.Address:        200,
		"/autodiscover/autodiscover.json/v1.0/" + box.Address + "?Protocol=autodiscoverv1":    200,
		"/AutoDiscover/Autodiscover.JSON?Protocol=AutodiscoverV1&email=ann+x@" + domain:       200,
		"/AutoDiscover/Autodiscover.json/V1.0/Ann@" + domain + "?Protocol=AutodiscoverV1":     200,
		"/AutoDiscover/autodiscover.txt":                                                      404,
		"/autodiscover/autodiscover.json?Protocol=ActiveSync&Email=x@" + domain:               400,
		"/autodiscover/autodiscover.json?Protocol=AutodiscoverV1&Email=ann@elsewhere.example": 404,
	} {
		code, _, text := get(t, s, "localhost", path)
		if code != want || code == 200 && !bytes.Contains(text, []byte(`"Url":"http`)) {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
}

func TestAppleSetsItselfUp(t *testing.T) {
	s := servertest.Start(t)
	box := s.Dev.Mailboxes[0]
	a := s.API("GET", "/mailboxes/"+box.ID.String()+"/apple-profile", nil)
	var p struct {
		Content []struct {
			InHost  string `plist:"IncomingMailServerHostName"`
			InPort  int    `plist:"IncomingMailServerPortNumber"`
			InUser  string `plist:"IncomingMailServerUsername"`
			InTLS   bool   `plist:"IncomingMailServerUseSSL"`
			OutHost string `plist:"OutgoingMailServerHostName"`
			OutPort int    `plist:"OutgoingMailServerPortNumber"`
			OutUser string `plist:"OutgoingMailServerUsername"`
			OutTLS  bool   `plist:"OutgoingMailServerUseSSL"`
		} `plist:"PayloadContent"`
	}
	if a.Status != 200 || a.Header.Get("Content-Type") != "application/x-apple-aspen-config" {
		t.Fatalf("%d %v", a.Status, a.Header)
	}
	if err := plist.Unmarshal(a.Body, &p); err != nil || len(p.Content) != 1 {
		t.Fatalf("%v in %s", err, a.Body)
	}
	c := p.Content[0]
	signIn(t, s, []place{{host: c.InHost, port: c.InPort, user: c.InUser, tls: c.InTLS}}, []place{{host: c.OutHost, port: c.OutPort, user: c.OutUser, tls: c.OutTLS}}, box.Password)
}
