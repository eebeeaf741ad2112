// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"context"
	"strings"
)

// execute executes one command line, and returns its reply.
func (c *conn) execute(ctx context.Context, line string) reply {
	verb, arg, _ := strings.Cut(line, " ")
	arg = strings.Trim(arg, " ")
	switch strings.ToUpper(verb) {
	case "EHLO":
		return c.hello(arg, true)
	case "HELO":
		return c.hello(arg, false)
	case "MAIL":
		return c.mail(ctx, arg)
	case "RCPT":
		return c.rcpt(ctx, arg)
	case "DATA":
		return c.data(ctx, arg)
	case "BDAT":
		return c.bdat(ctx, arg)
	case "AUTH":
		return c.auth(ctx, arg)
	case "STARTTLS":
		return c.starttls(ctx, arg)
	case "RSET":
		return c.rset(arg)
	case "NOOP":
		c.idleCommands++
		return replyOK
	case "QUIT":
		c.closing = true
		return reply{221, "2.0.0", "Goodbye"}
	case "VRFY":
		c.idleCommands++
		return reply{252, "2.1.5", "Send some mail and see"}
	case "EXPN":
		return reply{502, "5.5.1", "Lists are not shown"}
	case "HELP":
		c.idleCommands++
		return reply{214, "2.0.0", "See RFC 5321"}
	case "GET", "POST", "PUT", "HEAD", "CONNECT", "OPTIONS":
		// An attack through a browser, with SMTP commands in the bodies of its requests.
		c.closing = true
		return reply{421, "4.7.0", "This is no web server"}
	}
	return reply{500, "5.5.1", "There is no such command"}
}

func (c *conn) rset(arg string) reply {
	if arg != "" {
		return reply{501, "5.5.4", "RSET has no argument"}
	}
	c.idleCommands++
	c.resetTransaction()
	return replyOK
}

// cutPath splits the path in angle brackets off the argument of MAIL and RCPT. It returns the path
// without brackets and source route (RFC 5321 §4.1.1.3).
func cutPath(arg, keyword string) (path, params string, ok bool) {
	if len(arg) < len(keyword) || !strings.EqualFold(arg[:len(keyword)], keyword) {
		return "", "", false
	}
	arg = strings.TrimLeft(arg[len(keyword):], " ")
	if arg == "" || arg[0] != '<' {
		return "", "", false
	}
	end, quoted := -1, false
	for i := 1; i < len(arg) && end < 0; i++ {
		switch {
		case arg[i] == '\\' && quoted:
			i++
		case arg[i] == '"':
			quoted = !quoted
		case arg[i] == '>' && !quoted:
			end = i
		}
	}
	if end < 0 || end+1 < len(arg) && arg[end+1] != ' ' {
		return "", "", false
	}
	path, params = arg[1:end], arg[end+1:]
	if strings.HasPrefix(path, "@") {
		_, after, found := strings.Cut(path, ":")
		if !found {
			return "", "", false
		}
		path = after
	}
	return path, params, true
}

// param is a parameter of MAIL or RCPT.
type param struct{ name, value string }

// parseParams parses the parameters. It returns false if a name occurs twice.
func parseParams(s string) (list []param, good bool) {
	for _, field := range strings.Fields(s) {
		name, value, _ := strings.Cut(field, "=")
		p := param{strings.ToUpper(name), value}
		for _, other := range list {
			if other.name == p.name {
				return nil, false
			}
		}
		list = append(list, p)
	}
	return list, true
}
