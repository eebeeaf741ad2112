// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/pires/go-proxyproto"
)

// balanced is a connection from a load balancer.
type balanced struct{ net.Conn }

func (balanced) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4711} }

// FuzzPROXY sends arbitrary bytes as a load balancer. An accepted connection has a client address,
// and continues after the header.
func FuzzPROXY(f *testing.F) {
	f.Add([]byte("PROXY TCP4 192.0.2.9 127.0.0.1 4711 25\r\nQUIT\r\n"))
	f.Add([]byte("PROXY TCP6 2001:db8::1 ::1 4711 25\r\n"))
	f.Add([]byte("PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\nQUIT\r\n"))
	f.Add([]byte("EHLO a.example\r\n"))
	for _, of := range []net.Addr{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 1}, &net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 1}, &net.UDPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 1}, &net.UnixAddr{Net: "unix", Name: "/a"}} {
		b, err := proxyproto.HeaderProxyFromAddrs(2, of, of).Format()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(b, "QUIT\r\n"...))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		near, far := net.Pipe()
		go func() {
			_, _ = near.Write(said)
			_ = near.Close()
		}()
		p := &proxyListener{accepted: make(chan acceptResult, 1), closed: make(chan struct{})}
		p.readHeader(balanced{far})
		defer func() { _ = far.Close() }()
		select {
		case a := <-p.accepted:
			tcp, ok := a.RemoteAddr().(*net.TCPAddr)
			if !ok {
				t.Fatalf("a client at %T %v", a.RemoteAddr(), a.RemoteAddr())
			}
			if _, ok := netip.AddrFromSlice(tcp.IP); !ok {
				t.Fatalf("a client at %v", tcp)
			}
			if rest, err := io.ReadAll(a); err != nil || !bytes.HasSuffix(said, rest) {
				t.Fatalf("%q, %v is left of %q", rest, err, said)
			}
		default:
			if _, err := far.Write([]byte("x")); err == nil {
				t.Fatal("neither handed on nor closed")
			}
		}
	})
}
