// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
)

// authenticate logs in with AUTH PLAIN (RFC 4616), or with LOGIN if the host does not offer PLAIN.
func (c *Conn) authenticate() error {
	if c.peer.TLS == "" && !c.opts.Addr.Addr().Unmap().IsLoopback() {
		return c.localDialError(NextHost, StageAuth, errors.New("a password is sent over TLS only, and the host does not offer it"))
	}
	a := c.opts.Auth
	if strings.ContainsRune(a.User+a.Password, 0) {
		return c.localDialError(NextHost, StageAuth, errors.New("user name or password has a zero byte in it"))
	}
	// The host may repeat the secrets: hide them in its replies.
	c.mask = strings.NewReplacer(a.Password, "***", b64(a.Password), "***", b64("\x00"+a.User+"\x00"+a.Password), "***")
	defer func() { c.mask = nil }()
	var r Reply
	var err error
	switch {
	case slices.Contains(c.ext.Auth, "PLAIN"):
		r, err = c.command("AUTH PLAIN "+b64("\x00"+a.User+"\x00"+a.Password), "AUTH PLAIN ***")
	case slices.Contains(c.ext.Auth, "LOGIN"):
		r, err = c.command("AUTH LOGIN", "AUTH LOGIN")
		for _, secret := range []string{a.User, a.Password} {
			if err == nil && r.Code == 334 {
				r, err = c.command(b64(secret), "***")
			}
		}
	default:
		return c.localDialError(NextHost, StageAuth, errors.New("the host offers neither AUTH PLAIN nor AUTH LOGIN"))
	}
	if err != nil || !r.positive() {
		return c.replyDialError(StageAuth, r, err)
	}
	return nil
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
