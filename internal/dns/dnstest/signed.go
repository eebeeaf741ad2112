// SPDX-License-Identifier: Apache-2.0

package dnstest

import (
	"bufio"
	"context"
	"crypto"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/mailstead/mailstead/internal/needtest"
)

// The zones of SignedServer: signedZone is signed with DNSSEC, unsignedZone is not.
const (
	signedZone   = "signed.test."
	unsignedZone = "plain.test."
)

// SignedServer is an authoritative server for a zone with DNSSEC and one without.
type SignedServer struct {
	t       testing.TB
	records *Records
	key     *wire.DNSKEY
	signer  crypto.Signer

	mu        sync.Mutex
	corrupted map[string]bool
}

// StartSigned runs unbound, a real validating resolver, in front of an authoritative server for
// signed.test and plain.test until the test ends. It returns unbound's address. Records are full
// zone-file lines. Pass all of them at the start, since unbound caches answers.
func StartSigned(t testing.TB, records ...string) (string, *SignedServer) {
	t.Helper()
	z := &SignedServer{t: t, records: NewRecords(), corrupted: map[string]bool{}}
	z.key = &wire.DNSKEY{
		Hdr:   wire.RR_Header{Name: signedZone, Rrtype: wire.TypeDNSKEY, Class: wire.ClassINET, Ttl: 60},
		Flags: wire.ZONE | wire.SEP, Protocol: 3, Algorithm: wire.ECDSAP256SHA256,
	}
	private, err := z.key.Generate(256)
	if err != nil {
		t.Fatal(err)
	}
	z.signer = private.(crypto.Signer)
	for _, origin := range []string{signedZone, unsignedZone} {
		records = append(records, origin+" SOA ns."+origin+" x."+origin+" 1 3600 600 86400 1", origin+" NS ns."+origin, "ns."+origin+" A 127.0.0.1")
	}
	records = append(records, z.key.String())
	if err := z.records.Add(records...); err != nil {
		t.Fatal(err)
	}
	return z.startUnbound(listen(t, z)), z
}

// CorruptSignature makes the signatures of a record set invalid; kind is its type, such as "TLSA".
func (z *SignedServer) CorruptSignature(name, kind string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.corrupted[zoneKey(name)+" "+kind] = true
}

// ServeDNS answers a question.
func (z *SignedServer) ServeDNS(w wire.ResponseWriter, req *wire.Msg) {
	m := new(wire.Msg).SetReply(req)
	m.Authoritative = true
	m.SetEdns0(4096, true)
	z.answer(m, wire.CanonicalName(req.Question[0].Name), req.Question[0].Qtype)
	_ = w.WriteMsg(m)
}

// answer adds the records of a name, following CNAMEs, or the proof that there are none.
func (z *SignedServer) answer(m *wire.Msg, name string, qtype uint16) {
	for {
		origin := signedZone
		if wire.IsSubDomain(unsignedZone, name) {
			origin = unsignedZone
		} else if !wire.IsSubDomain(signedZone, name) {
			return
		}
		a, _ := z.records.Source(context.Background(), name)
		var found, alias []wire.RR
		for _, rr := range a.Records {
			switch rr.Header().Rrtype {
			case qtype:
				found = append(found, rr)
			case wire.TypeCNAME:
				alias = append(alias, rr)
			}
		}
		if len(found) > 0 {
			m.Answer = append(m.Answer, z.withSignature(found)...)
			return
		}
		if len(alias) > 0 {
			m.Answer = append(m.Answer, z.withSignature(alias)...)
			name = wire.CanonicalName(alias[0].(*wire.CNAME).Target)
			continue
		}
		top, _ := z.records.Source(context.Background(), origin)
		m.Ns = append(m.Ns, z.withSignature(top.Records[:1])...)
		if origin == signedZone {
			// Deny only this name and only this type (as in RFC 4470).
			types := map[uint16]bool{wire.TypeRRSIG: true, wire.TypeNSEC: true}
			for _, rr := range a.Records {
				types[rr.Header().Rrtype] = true
			}
			nsec := &wire.NSEC{
				Hdr:        wire.RR_Header{Name: name, Rrtype: wire.TypeNSEC, Class: wire.ClassINET, Ttl: 1},
				NextDomain: "\\000." + name,
			}
			for t := range uint16(300) {
				if types[t] {
					nsec.TypeBitMap = append(nsec.TypeBitMap, t)
				}
			}
			m.Ns = append(m.Ns, z.withSignature([]wire.RR{nsec})...)
		}
		return
	}
}

// withSignature appends the signature of a set, if its zone is signed.
func (z *SignedServer) withSignature(set []wire.RR) []wire.RR {
	h := set[0].Header()
	if !wire.IsSubDomain(signedZone, wire.CanonicalName(h.Name)) {
		return set
	}
	sig := &wire.RRSIG{
		Inception: uint32(time.Now().Add(-time.Hour).Unix()), Expiration: uint32(time.Now().Add(time.Hour).Unix()),
		KeyTag: z.key.KeyTag(), SignerName: signedZone, Algorithm: z.key.Algorithm,
	}
	if err := sig.Sign(z.signer, set); err != nil {
		z.t.Errorf("signing %s: %v", h.Name, err)
	}
	z.mu.Lock()
	spoiled := z.corrupted[wire.CanonicalName(h.Name)+" "+wire.TypeToString[h.Rrtype]]
	z.mu.Unlock()
	if spoiled {
		sig.Inception++
	}
	return append(set[:len(set):len(set)], sig)
}

// startUnbound runs unbound as a resolver for the authoritative server at addr.
func (z *SignedServer) startUnbound(addr string) string {
	z.t.Helper()
	program := needtest.Program(z.t, "unbound")
	host, port, _ := net.SplitHostPort(addr)
	for range 20 {
		own := ClosedAddr(z.t)
		if z.runUnbound(program, own, host+"@"+port) {
			return own
		}
	}
	z.t.Fatal("unbound does not start")
	return ""
}

// runUnbound starts unbound and waits until it is ready. It returns false if its port was taken
// meanwhile.
func (z *SignedServer) runUnbound(program, own, authority string) bool {
	dir := z.t.TempDir()
	host, port, _ := net.SplitHostPort(own)
	config := filepath.Join(dir, "unbound.conf")
	text := fmt.Sprintf(`server:
	directory: %q
	chroot: ""
	username: ""
	pidfile: ""
	logfile: ""
	use-syslog: no
	verbosity: 1
	do-daemonize: no
	num-threads: 1
	interface: %s
	port: %s
	do-ip6: no
	access-control: 127.0.0.0/8 allow
	do-not-query-localhost: no
	qname-minimisation: no
	module-config: "validator iterator"
	local-zone: "test." nodefault
	trust-anchor: %q
stub-zone:
	name: %q
	stub-addr: %s
stub-zone:
	name: %q
	stub-addr: %s
remote-control:
	control-enable: no
`, dir, host, port, strings.ReplaceAll(z.key.String(), "\t", " "), signedZone, authority, unsignedZone, authority)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		z.t.Fatal(err)
	}
	cmd := exec.Command(program, "-d", "-c", config)
	out, err := cmd.StderrPipe()
	if err != nil {
		z.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		z.t.Fatal(err)
	}
	var said strings.Builder
	serves, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		lines, begun := bufio.NewScanner(out), false
		for lines.Scan() {
			said.WriteString(lines.Text() + "\n")
			if !begun && strings.Contains(lines.Text(), "start of service") {
				begun = true
				close(serves)
			}
		}
	}()
	stop := func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
	}
	select {
	case <-serves:
		z.t.Cleanup(stop)
	case <-ended:
		stop()
		z.t.Logf("unbound said:\n%s", said.String())
		return false
	}
	return true
}
