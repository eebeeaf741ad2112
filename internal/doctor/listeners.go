// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Listeners checks the ports of a service.
type Listeners struct {
	Bind          netip.Addr
	Host          string
	Running       bool           // the service is running
	ProxyNetworks []netip.Prefix // networks whose connections begin with the PROXY protocol
	MachineAddrs  func() ([]netip.Addr, error)
	Certificate   *x509.Certificate // expected certificate; nil: unknown
}

// Listener is a port of the service.
type Listener struct {
	Name string // smtp, submission, submissions, imap, imaps, http, https
	Port int
}

// listenerTimeout is the limit for one address of a listener: it is local.
const listenerTimeout = 5 * time.Second

// CheckBind checks that the service can listen on its ports.
func (d Listeners) CheckBind(listeners []Listener, owner int) func(context.Context, *Report) {
	return func(_ context.Context, r *Report) {
		if !d.hasLocalAddress() {
			r.Fail("Give --bind an address of this machine, or 0.0.0.0 or :: for all.", "%s is no address of this machine", d.Bind)
		}
		first, lowest := firstUnprivilegedPort(), 65536
		for _, listener := range listeners {
			lowest = min(lowest, listener.Port)
		}
		if !d.Running && lowest < first && owner != 0 && !(os.Geteuid() == owner && canBindPrivileged()) {
			r.Warn("Unless its unit has them already: AmbientCapabilities=CAP_NET_BIND_SERVICE for systemd, or setcap cap_net_bind_service=+ep on the program.",
				"the service is to run as %s, who may not take ports below %d without a capability", userName(owner), first)
		}
		behind := slices.ContainsFunc(d.ProxyNetworks, func(p netip.Prefix) bool { return p.Contains(d.Bind) })
		if d.Bind.IsLoopback() && !behind {
			r.Warn("Give --bind 0.0.0.0, or :: for IPv6 too, and see that the firewall lets the ports through. A proxy on this machine that passes them on is named by --proxy-from.",
				"only this machine reaches %s: others can't deliver mail here, and no mail program connects", d.Bind)
		}
		if r.worst() == OK {
			r.OK("%s", d.Bind)
		}
	}
}

// hasLocalAddress reports whether the configured address belongs to this machine.
func (d Listeners) hasLocalAddress() bool {
	if d.Bind.IsUnspecified() || d.Bind.IsLoopback() {
		return true
	}
	own, err := d.MachineAddrs()
	return err != nil || slices.Contains(own, d.Bind.Unmap())
}

// firstUnprivilegedPort returns the first port that every user may bind.
func firstUnprivilegedPort() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	if err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return n
		}
	}
	return 1024
}

// canBindPrivileged reports whether this process has the capability to bind lower ports.
func canBindPrivileged() bool {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if set, ok := strings.CutPrefix(line, "CapEff:"); ok {
			const bindService = 10
			n, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
			return err == nil && n>>bindService&1 == 1
		}
	}
	return false
}

// Check connects to a listener. If the service runs, it must send a greeting; otherwise the port
// must be free. Check doesn't bind the port, because that could stop a service that is just
// starting.
func (d Listeners) Check(listener Listener) func(context.Context, *Report) {
	return func(ctx context.Context, r *Report) {
		if !d.hasLocalAddress() {
			return // reported once; other hosts are left alone
		}
		taken, free := "", error(nil)
		for _, addr := range d.addresses() {
			said, err := d.readGreeting(ctx, listener, addr)
			if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, errNoSuchFamily) {
				free = err
				continue
			}
			if d.Running {
				d.report(r, listener, addr, said, err)
				return
			}
			taken = fmt.Sprintf("%s on %s", describeGreeting(said), addr)
			break
		}
		switch {
		case taken != "":
			r.Fail(fmt.Sprintf("Find out what it is (ss -ltnp 'sport = :%d') and stop it for good, such as by systemctl disable --now postfix.", listener.Port),
				"port %d is taken by another program: %s", listener.Port, taken)
		case d.Running:
			r.Fail("Look at the log of the service, and whether it was started with other settings (--bind, --port-base).", "the service runs, but nothing answers at port %d: %v", listener.Port, free)
		default:
			r.OK("port %d is free", listener.Port)
		}
	}
}

// IsRunning reports whether a Mailstead with our host name greets on a listener, whatever its data
// directory.
func (d Listeners) IsRunning(ctx context.Context, smtp Listener) bool {
	if !d.hasLocalAddress() {
		return false
	}
	for _, addr := range d.addresses() {
		said, err := d.readGreeting(ctx, smtp, addr)
		if err == nil && d.isMailstead(smtp, said) && strings.HasPrefix(said, "220 "+d.Host+" ") {
			return true
		}
	}
	return false
}

// describeGreeting describes the server that answered.
func describeGreeting(said string) string {
	if said == "" {
		return "something that says nothing"
	}
	return "it says “" + said + "”"
}

// addresses returns the addresses to connect to: the service listens on all of them, but another
// program that has the port may use only one.
func (d Listeners) addresses() []netip.Addr {
	if !d.Bind.IsUnspecified() {
		return []netip.Addr{d.Bind}
	}
	list := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	if d.Bind.Is6() {
		list = append(list, netip.IPv6Loopback())
	}
	if d.Running {
		return list
	}
	own, _ := d.MachineAddrs() // loopback is always checked
	for _, a := range own {
		if !a.IsLoopback() && !a.IsLinkLocalUnicast() && (a.Is4() || d.Bind.Is6()) {
			list = append(list, a)
		}
	}
	return list
}

var (
	errNoSuchFamily     = errors.New("this machine has no such addresses")
	errNoTLS            = errors.New("no STARTTLS is offered")
	errExpired          = errors.New("it expired")
	errOtherCertificate = errors.New("it is another one")
)

// readGreeting connects and returns the greeting.
func (d Listeners) readGreeting(ctx context.Context, listener Listener, addr netip.Addr) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, listenerTimeout)
	defer cancel()
	var dialer net.Dialer
	nc, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(addr, uint16(listener.Port)).String())
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EAFNOSUPPORT), errors.Is(err, syscall.EHOSTUNREACH):
		return "", errNoSuchFamily
	case err != nil:
		return "", err
	}
	defer nc.Close() //nolint:errcheck // done with
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })()
	if from := nc.LocalAddr().(*net.TCPAddr).AddrPort(); slices.ContainsFunc(d.ProxyNetworks, func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap()) }) {
		family := "TCP4"
		if addr.Is6() {
			family = "TCP6"
		}
		if _, err := fmt.Fprintf(nc, "PROXY %s %s %s %d %d\r\n", family, from.Addr().Unmap(), addr, from.Port(), listener.Port); err != nil {
			return "", err
		}
	}
	var shown *x509.Certificate
	if listener.Name == "submissions" || listener.Name == "imaps" || listener.Name == "https" {
		// Another check verifies the certificate.
		t := tls.Client(nc, &tls.Config{ServerName: d.Host, InsecureSkipVerify: true})
		if err := t.HandshakeContext(ctx); err != nil {
			return "", fmt.Errorf("TLS: %w", err)
		}
		nc, shown = t, t.ConnectionState().PeerCertificates[0]
	}
	in := bufio.NewReader(io.LimitReader(nc, 64<<10))
	if listener.Name == "http" || listener.Name == "https" {
		if _, err := fmt.Fprintf(nc, "HEAD / HTTP/1.0\r\nHost: %s\r\n\r\n", d.Host); err != nil {
			return "", err
		}
	}
	said, err := readLine(in)
	if err == nil && listener.Name == "submission" && strings.HasPrefix(said, "220 ") {
		err = checkSTARTTLS(nc, in)
	}
	if err == nil && shown != nil && d.Running {
		err = d.checkCertificate(shown)
	}
	return said, err
}

// checkCertificate reports a certificate that the service still uses although it was replaced.
func (d Listeners) checkCertificate(shown *x509.Certificate) error {
	switch {
	case time.Now().After(shown.NotAfter):
		return errExpired
	case d.Certificate != nil && !shown.Equal(d.Certificate):
		return errOtherCertificate
	}
	return nil
}

func readLine(in *bufio.Reader) (string, error) {
	text, err := in.ReadString('\n')
	if text != "" {
		err = nil // a server that hangs up after a greeting has sent it
	}
	return printable(text), err
}

// checkSTARTTLS sends EHLO and looks for STARTTLS.
func checkSTARTTLS(nc net.Conn, in *bufio.Reader) error {
	if _, err := io.WriteString(nc, "EHLO localhost\r\n"); err != nil {
		return err
	}
	found := false
	for {
		text, err := readLine(in)
		if err != nil {
			return err
		}
		found = found || len(text) > 4 && strings.EqualFold(text[4:], "STARTTLS")
		if len(text) < 4 || text[3] != '-' {
			break
		}
	}
	_, _ = io.WriteString(nc, "QUIT\r\n") // the result doesn't matter
	if !found {
		return errNoTLS
	}
	return nil
}

// isMailstead reports whether a greeting comes from Mailstead.
func (d Listeners) isMailstead(listener Listener, said string) bool {
	switch listener.Name {
	case "smtp", "submission", "submissions":
		return strings.HasPrefix(said, "220 ") && strings.HasSuffix(said, " ESMTP Mailstead")
	case "imap", "imaps":
		return strings.HasPrefix(said, "* OK") && strings.HasSuffix(said, " is ready.")
	}
	return false
}

// report adds the finding for a listener of a running service.
func (d Listeners) report(r *Report, listener Listener, addr netip.Addr, said string, err error) {
	want := map[string]string{"smtp": "220 ", "submission": "220 ", "submissions": "220 ", "imap": "* OK", "imaps": "* OK", "http": "HTTP/", "https": "HTTP/"}[listener.Name]
	switch {
	case errors.Is(err, errNoTLS):
		r.Fail("Look at the log of the service: it may have no certificate.", "port %d greets, but offers no STARTTLS", listener.Port)
	case errors.Is(err, errExpired):
		r.Fail("Restart the service if its certificate is a good one; else see to that.", "port %d shows a certificate that has expired", listener.Port)
	case errors.Is(err, errOtherCertificate):
		r.Warn("Look at the log of the service, and restart it, unless the file was changed a moment ago.", "port %d shows another certificate than the one that is kept", listener.Port)
	case err != nil:
		r.Fail("Look at the log of the service; if it is overloaded or hangs, restart it.", "port %d is open at %s, but gives no greeting: %v", listener.Port, addr, err)
	case !strings.HasPrefix(said, want), listener.Name != "http" && listener.Name != "https" && !d.isMailstead(listener, said):
		r.Fail("The service may have been started with other settings (--bind, --port-base): give doctor the same, or stop the other program.",
			"port %d is answered by another program: %s", listener.Port, describeGreeting(said))
	case want == "220 " && !strings.HasPrefix(said, "220 "+d.Host+" "):
		r.Warn("Restart the service after a change of --host, and give doctor the same settings.", "port %d greets by another name than %s: “%s”", listener.Port, d.Host, said)
	default:
		r.OK("port %d greets", listener.Port)
	}
}
