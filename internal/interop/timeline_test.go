// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/cert/certtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// What a hostile mail host does at a step besides replying.
const (
	hangUp    = "hang up"
	alert     = "alert"     // a TLS handshake without a certificate
	nonsense  = "nonsense"  // in place of a TLS handshake
	injection = "injection" // cleartext data after the reply to STARTTLS
	trickle   = "trickle"   // every reply byte by byte
)

// hostile is a mail host with one fault: at the greeting, EHLO, STARTTLS, MAIL, RCPT, DATA, inside
// the message ("body") or at the final dot.
type hostile struct {
	at, does string
	tls      *tls.Config
}

func (m hostile) serve(nc net.Conn) {
	defer nc.Close() //nolint:errcheck // it hangs up
	talk := &hostileTalk{hostile: m, nc: nc, br: bufio.NewReader(nc)}
	talk.say("greeting", "220 hostile.example ESMTP")
	for !talk.gone {
		line, err := talk.br.ReadString('\n')
		if err != nil {
			return
		}
		verb, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch verb {
		case "EHLO":
			more := "250-STARTTLS\r\n"
			if talk.secure {
				more = ""
			}
			talk.say(verb, "250-hostile.example\r\n"+more+"250-PIPELINING\r\n250 ENHANCEDSTATUSCODES")
		case "STARTTLS":
			talk.startTLS()
		case "DATA":
			if talk.say(verb, "354 go ahead") {
				talk.message()
			}
		default:
			talk.say(verb, "250 2.0.0 ok")
		}
	}
}

type hostileTalk struct {
	hostile
	nc           net.Conn
	br           *bufio.Reader
	secure, gone bool
}

// say sends a reply, and reports whether it is the usual one.
func (t *hostileTalk) say(step, usual string) bool {
	reply := usual
	if step == t.at {
		reply = t.does
	}
	switch {
	case reply == hangUp:
		t.gone = true
		return false
	case t.does == trickle:
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := range len(usual) {
			<-tick.C
			_, _ = t.nc.Write([]byte{usual[i]})
		}
		reply, usual = "", ""
	}
	_, _ = t.nc.Write([]byte(reply + "\r\n"))
	t.gone = strings.HasPrefix(reply, "421")
	return reply == usual
}

func (t *hostileTalk) startTLS() {
	does := ""
	if t.at == "STARTTLS" {
		does = t.does
	}
	switch does {
	case injection:
		_, _ = t.nc.Write([]byte("220 go ahead\r\n250 evil\r\n"))
		return
	case nonsense:
		_, _ = t.nc.Write([]byte("220 go ahead\r\n"))
		_, _ = t.br.Peek(1)
		_, _ = t.nc.Write([]byte("what do you mean?\r\n"))
		t.gone = true
		return
	case alert:
		_, _ = t.nc.Write([]byte("220 go ahead\r\n"))
		t.gone = tls.Server(t.nc, &tls.Config{}).Handshake() != nil
		return
	}
	if t.say("STARTTLS", "220 go ahead") {
		t.nc = tls.Server(t.nc, t.tls)
		t.br.Reset(t.nc)
		t.secure = true
	}
}

func (t *hostileTalk) message() {
	for n := 0; ; n++ {
		line, err := t.br.ReadString('\n')
		switch {
		case err != nil:
			t.gone = true
			return
		case line == ".\r\n":
			t.say("final", "250 2.0.0 taken")
			return
		case n == 100 && t.at == "body":
			t.say("body", "")
			t.gone = true
			return
		}
	}
}

// hostileCase is a host's fault, and the expected timeline.
type hostileCase struct {
	at, does string
	outcome  string
	stage    string
	code     int
	enhanced string
	secure   bool
	story    string // part of the transcript
}

func hostileCases() []hostileCase {
	const later, never = "451 4.3.0 not now", "554 5.7.1 not you"
	all := []hostileCase{
		{"EHLO", never, "delivered", "final", 250, "2.0.0", false, "C: HELO "},
		{"EHLO", later, "deferred", "ehlo", 451, "4.3.0", false, "S: 451 4.3.0 not now"},
		{"greeting", never, "deferred", "greeting", 554, "5.7.1", false, "S: 554 5.7.1 not you"},
		{"greeting", later, "deferred", "greeting", 451, "4.3.0", false, "S: 451 4.3.0 not now"},
		{"STARTTLS", later, "delivered", "final", 250, "2.0.0", false, "S: 451 4.3.0 not now"},
		{"STARTTLS", never, "delivered", "final", 250, "2.0.0", false, "S: 554 5.7.1 not you"},
		{"STARTTLS", alert, "delivered", "final", 250, "2.0.0", false, "TLS handshake"},
		{"STARTTLS", nonsense, "delivered", "final", 250, "2.0.0", false, "TLS handshake"},
		{"STARTTLS", injection, "delivered", "final", 250, "2.0.0", false, "more than its reply to STARTTLS"},
		{"body", hangUp, "deferred", "final", 0, "4.4.2", true, "connection lost"},
		{"body", "452 4.3.1 disk full", "deferred", "final", 452, "4.3.1", true, "S: 452 4.3.1 disk full"},
		{"body", "552 5.3.4 too much", "bounced", "final", 552, "5.3.4", true, "S: 552 5.3.4 too much"},
		{"RCPT", "421 4.7.0 too fast", "deferred", "rcpt", 421, "4.7.0", true, "S: 421 4.7.0 too fast"},
		{"nowhere", trickle, "delivered", "final", 250, "2.0.0", true, "S: 250 2.0.0 taken"},
		{"nowhere", "", "delivered", "final", 250, "2.0.0", true, "S: 250 2.0.0 taken"},
	}
	for _, step := range []string{"greeting", "EHLO"} {
		all = append(all, hostileCase{step, hangUp, "deferred", strings.ToLower(step), 0, "4.4.2", false, "EOF"})
	}
	all = append(all, hostileCase{"STARTTLS", hangUp, "delivered", "final", 250, "2.0.0", false, "EOF"})
	for _, step := range []string{"MAIL", "RCPT", "DATA", "final"} {
		stage := strings.ToLower(step)
		all = append(all,
			hostileCase{step, hangUp, "deferred", stage, 0, "4.4.2", true, "connection lost"},
			hostileCase{step, later, "deferred", stage, 451, "4.3.0", true, "S: 451 4.3.0 not now"},
			hostileCase{step, never, "bounced", stage, 554, "5.7.1", true, "S: 554 5.7.1 not you"})
	}
	return all
}

// listenAll listens on a loopback address for each case, all on one port.
func listenAll(t *testing.T, cases []hostileCase) (port int) {
	t.Helper()
	config := certtest.New(t, "root").ServerConfig("hostile.example")
	var all []net.Listener
	for try := 0; len(all) < len(cases); try++ {
		for _, l := range all {
			_ = l.Close()
		}
		all = nil
		if try == 50 {
			t.Fatal("no port is free at all addresses")
		}
		port = dnstest.FreePort(t, "127.0.1.1")
		for i := range cases {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.1.%d:%d", i+1, port))
			if err != nil {
				break
			}
			all = append(all, l)
		}
	}
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	for i, l := range all {
		t.Cleanup(func() { _ = l.Close() })
		serving.Go(func() {
			for {
				nc, err := l.Accept()
				if err != nil {
					return
				}
				serving.Go(func() { hostile{cases[i].at, cases[i].does, config}.serve(nc) })
			}
		})
	}
	return port
}

// A host may have any fault at any step: the timeline reports the step, the reply, whether it was
// under TLS, and the transcript.
func TestTimelineTellsTheTruth(t *testing.T) {
	cases := hostileCases()
	port := listenAll(t, cases)
	resolver, zone := dnstest.Start(t, "mail.service.example. A 127.0.0.1", `spf.mail.service.example. TXT "v=spf1 ip4:127.0.0.1 -all"`)
	c := serve(t, resolver, port)
	answer := c.call(t, "POST", "/domains", map[string]any{"name": "shop.example"})
	var d domainAnswer
	answer.Decode(t, &d)
	publish(zone, d)
	for _, check := range []string{"/verify", "/verify-dns"} {
		if answer = c.call(t, "POST", "/domains/"+d.ID+check, nil); answer.Status != 200 {
			t.Fatalf("%d %s", answer.Status, answer.Body)
		}
	}
	ids := make([]string, len(cases))
	for i := range cases {
		zone.Add(fmt.Sprintf("d%d.example. MX 10 mx.d%d.example.", i, i), fmt.Sprintf("mx.d%d.example. A 127.0.1.%d", i, i+1))
		var m sent
		answer = c.call(t, "POST", "/outbound/send", map[string]any{
			"from_email": "orders@shop.example", "to": []string{fmt.Sprintf("ann@d%d.example", i)}, "subject": "hello",
			"text": strings.Repeat("a line of a message that is long\n", 3000),
		})
		if answer.Status != 202 {
			t.Fatalf("%d %s", answer.Status, answer.Body)
		}
		answer.Decode(t, &m)
		ids[i] = m.ID
	}
	for i, want := range cases {
		t.Run(want.at+" "+want.does, func(t *testing.T) { tells(t, c, ids[i], i, want) })
	}
}

// tells compares the API's report on a message with the actual events.
func tells(t *testing.T, c customer, id string, i int, want hostileCase) {
	var m struct {
		Recipients []struct {
			Status   string
			Timeline []struct {
				Outcome, IP, TLS, Stage, Diagnostic, Transcript string
				RemoteMTA                                       string `json:"remote_mta"`
				Code                                            int    `json:"smtp_code"`
				Enhanced                                        string `json:"enhanced_code"`
			}
		}
	}
	servertest.Eventually(t, func() string {
		answer := c.call(t, "GET", "/outbound/messages/"+id, nil)
		answer.Decode(t, &m)
		if len(m.Recipients) != 1 || len(m.Recipients[0].Timeline) == 0 {
			return string(answer.Body)
		}
		return ""
	})
	a := m.Recipients[0].Timeline[0]
	if a.Outcome != want.outcome || m.Recipients[0].Status != want.outcome || a.Stage != want.stage || a.Code != want.code || a.Enhanced != want.enhanced ||
		strings.HasPrefix(a.TLS, "TLS 1.3") != want.secure || a.Diagnostic == "" || !strings.Contains(a.Transcript, want.story) ||
		a.RemoteMTA != fmt.Sprintf("mx.d%d.example", i) || a.IP != fmt.Sprintf("127.0.1.%d", i+1) {
		t.Errorf("%+v", a)
	}
}
