// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
)

// loginFlood is a service with many concurrent logins. The PROXY protocol sets the clients'
// networks.
type loginFlood struct {
	*servertest.Server
	t     *testing.T
	tls   *tls.Config
	tries atomic.Int64 // number of rejected passwords
	next  atomic.Int64 // number of the next password
}

// 500 connections of one network try wrong passwords. Meanwhile others log in by IMAP, submission
// and dashboard, and all succeed. In a soak run, half of them succeed within 300 ms, and 99 of 100
// within 1 s.
func TestLoginFlood(t *testing.T) {
	needtest.Full(t, "a flood of logins")
	dbtest.EachURL(t, func(t *testing.T, database string) {
		s := servertest.Start(t, servertest.Database(database), servertest.ProxyFrom("127.0.0.1/32"))
		f := &loginFlood{Server: s, t: t, tls: s.TLS()}
		now := time.Now()
		s.Mailboxes.Hasher.Now = func() time.Time { return now }
		n := servertest.SoakSize(4, 100)
		for _, during := range []string{"quiet", "same", "different"} {
			f.prepare(during, n)
		}
		f.others("quiet", n)
		before := s.Mailboxes.Hasher.HashCount()
		stop := f.flood("192.0.2.1", func() (string, string) { return s.Dev.Mailboxes[0].Address, "Wrong-Horse-7" })
		f.others("same", n)
		stop()
		if hashes := s.Mailboxes.Hasher.HashCount() - before - int64(len(logins)*n); hashes != 1 {
			t.Errorf("the same wrong password cost %d hashes", hashes)
		}
		stop = f.flood("192.0.2.2", func() (string, string) {
			i := f.next.Add(1)
			return fmt.Sprintf("nobody%d@demo.test", i%1000), fmt.Sprint("Wrong-Horse-", i)
		})
		f.others("different", n)
		stop()
		if t.Logf("%d wrong passwords were tried", f.tries.Load()); f.tries.Load() < 500 {
			t.Error("that was no flood")
		}
	})
}

// logins are ways to log in.
var logins = map[string]func(f *loginFlood, ctx context.Context, from, address, password string) (bool, error){
	"imap": (*loginFlood).imap, "smtp": (*loginFlood).smtp, "dashboard": (*loginFlood).dashboard,
}

const floodPassword = "Correct-Horse-7"

// floodName returns the local part of a user that logs in by one of the ways.
func floodName(during, kind string, i int) string { return fmt.Sprintf("%s.%s.%d", during, kind, i) }

// prepare creates the users that log in.
func (f *loginFlood) prepare(during string, n int) {
	f.t.Helper()
	account, err := f.Accounts.ByEmail(f.t.Context(), f.Dev.Dashboard.Email)
	if err != nil {
		f.t.Fatal(err)
	}
	for kind := range logins {
		for i := range n {
			name, password, mb := floodName(during, kind, i), floodPassword, 1
			if kind == "dashboard" {
				_, err = f.Users.Create(f.t.Context(), user.CreateParams{Email: name + "@demo.test", Name: "Ann", Password: password}, account.ID)
			} else {
				_, _, err = f.Mailboxes.Create(f.t.Context(), account.ID, mailbox.CreateParams{Domain: f.Dev.Domain.ID, LocalPart: name, Password: &password, QuotaMB: &mb})
			}
			if err != nil {
				f.t.Fatal(err)
			}
		}
	}
}

// others logs in n times by each way, each time as another user and from another network.
func (f *loginFlood) others(during string, n int) {
	f.t.Helper()
	var all sync.WaitGroup
	for kind, login := range logins {
		all.Go(func() {
			var took []time.Duration
			for i := range n {
				start := time.Now()
				ok, err := login(f, f.t.Context(), fmt.Sprintf("198.51.%d.%d", kind[0], i+1), floodName(during, kind, i)+"@demo.test", floodPassword)
				if err != nil || !ok {
					f.t.Errorf("%s, log-in %d: %v, %v", kind, i, ok, err)
				}
				took = append(took, time.Since(start).Round(time.Millisecond))
			}
			slices.Sort(took)
			median, p99 := took[n/2], took[n*99/100]
			f.t.Logf("%s, %s: median %s, p99 %s", during, kind, median, p99)
			if servertest.SoakSize(0, 1) == 1 && (median > 300*time.Millisecond || p99 > time.Second) {
				f.t.Errorf("%s, %s: too slow", during, kind)
			}
		})
	}
	all.Wait()
}

// flood starts to try wrong passwords over 500 connections from one network at the same time.
func (f *loginFlood) flood(network string, wrong func() (address, password string)) (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var all, ready sync.WaitGroup
	begin := make(chan struct{})
	for i := range 500 {
		listener := "imaps"
		if i%5 == 0 { // the limit there is 100 connections per network
			listener = "submissions"
		}
		ready.Add(1)
		all.Go(func() { f.guess(ctx, listener, network, wrong, &ready, begin) })
	}
	ready.Wait()
	close(begin)
	return func() { cancel(); all.Wait() }
}

// guess tries wrong passwords as fast as the server allows, over one connection at a time.
func (f *loginFlood) guess(ctx context.Context, listener, network string, wrong func() (string, string), ready *sync.WaitGroup, begin chan struct{}) {
	arrive := sync.OnceFunc(func() {
		ready.Done()
		<-begin
	})
	defer arrive()
	for ctx.Err() == nil {
		c, err := f.dial(ctx, listener, network)
		if err != nil {
			continue
		}
		arrive()
		for err == nil {
			address, password := wrong()
			var ok bool
			if ok, err = c.login(listener, address, password); ok {
				f.t.Error("a wrong password was taken")
				return
			}
			f.tries.Add(1)
		}
		_ = c.Close()
	}
}

// line is a line-based connection.
type line struct {
	net.Conn
	in *bufio.Reader
}

// dial connects over TLS and reads the greeting.
func (f *loginFlood) dial(ctx context.Context, listener, network string) (*line, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", f.Addr(listener))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = nc.Close() })
	if _, err = fmt.Fprintf(nc, "PROXY TCP4 %s 127.0.0.1 4711 25\r\n", network); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	secure := tls.Client(nc, f.tls)
	c := &line{secure, bufio.NewReader(secure)}
	if _, err = c.in.ReadString('\n'); err == nil && listener == "submissions" {
		_, err = c.say("EHLO a.example", "250 ")
	}
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return c, nil
}

// say sends a line, and returns the first line of the answer that begins with one of last.
func (c *line) say(text string, last ...string) (string, error) {
	if _, err := io.WriteString(c, text+"\r\n"); err != nil {
		return "", err
	}
	for {
		said, err := c.in.ReadString('\n')
		if err != nil || slices.ContainsFunc(last, func(l string) bool { return strings.HasPrefix(said, l) }) {
			return said, err
		}
	}
}

func (c *line) login(listener, address, password string) (bool, error) {
	if listener == "imaps" {
		said, err := c.say(fmt.Sprintf(`a LOGIN "%s" "%s"`, address, password), "a ", "* BYE")
		return strings.HasPrefix(said, "a OK"), err
	}
	said, err := c.say("AUTH PLAIN "+base64.StdEncoding.EncodeToString([]byte("\x00"+address+"\x00"+password)), "2", "4", "5")
	return strings.HasPrefix(said, "235"), err
}

func (f *loginFlood) imap(ctx context.Context, from, address, password string) (bool, error) {
	return f.line(ctx, "imaps", from, address, password)
}

func (f *loginFlood) smtp(ctx context.Context, from, address, password string) (bool, error) {
	return f.line(ctx, "submissions", from, address, password)
}

func (f *loginFlood) line(ctx context.Context, listener, from, address, password string) (bool, error) {
	c, err := f.dial(ctx, listener, from)
	if err != nil {
		return false, err
	}
	defer c.Close()
	return c.login(listener, address, password)
}

func (f *loginFlood) dashboard(ctx context.Context, from, address, password string) (bool, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", f.Addr("http"))
	if err != nil {
		return false, err
	}
	defer nc.Close()
	form := url.Values{"email": {address}, "password": {password}}.Encode()
	_, err = fmt.Fprintf(nc, "PROXY TCP4 %s 127.0.0.1 4711 80\r\nPOST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s",
		from, len(form), form)
	if err != nil {
		return false, err
	}
	a, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		return false, err
	}
	return a.StatusCode == http.StatusSeeOther, a.Body.Close()
}
