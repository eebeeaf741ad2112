// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/egress"
)

// The error codes of attempts. They are stable.
const (
	ErrorDNS         = "dns"                 // the host name has no address, or could not be looked up
	ErrorAddress     = "address_not_allowed" // the host has no address that may be dialed
	ErrorRefused     = "connection_refused"
	ErrorUnreachable = "unreachable" // no connection, for another reason
	ErrorTLS         = "tls"         // invalid certificate, or failed handshake
	ErrorTimeout     = "timeout"
	ErrorClosed      = "connection_closed" // without a response
	ErrorResponse    = "invalid_answer"    // not HTTP
	ErrorRedirect    = "redirect"          // 3xx: not followed
	ErrorGone        = "gone"              // 410: disables the webhook
	ErrorStatus      = "status"            // any other status that is not 2xx
	ErrorPruned      = "event_pruned"      // nothing was sent: the event is no longer stored
)

// classifyStatus returns the error code and detail of an HTTP status: "" for success.
func classifyStatus(code int) (trouble, words string) {
	said := fmt.Sprintf("The receiver answered with status %d", code)
	if text := http.StatusText(code); text != "" {
		said += " (" + text + ")"
	}
	switch {
	case code/100 == 2:
		return "", ""
	case code/100 == 3:
		return ErrorRedirect, said + ". Redirects are not followed: give the final URL."
	case code == http.StatusGone:
		return ErrorGone, said + ", which asks for no more deliveries."
	}
	return ErrorStatus, said + "."
}

// classifyError returns the error code and detail of a request without a response. The text reveals
// nothing about internal networks.
func classifyError(ctx context.Context, err error, limit time.Duration) (trouble, words string) {
	var look *dns.Error
	var verify *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.Is(err, egress.ErrNoAllowedAddr):
		return ErrorAddress, "The host name leads to an address that deliveries are not sent to: it is not on the public Internet, or needs https."
	case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		return ErrorTimeout, fmt.Sprintf("There was no answer within %s.", limit)
	case errors.As(err, &look) && errors.Is(err, dns.ErrTemporary):
		return ErrorDNS, "The host name could not be looked up: its DNS servers gave no usable answer."
	case errors.As(err, &look):
		return ErrorDNS, "The host name does not exist, or has no address."
	case errors.As(err, &verify):
		return ErrorTLS, "The receiver's certificate is not valid: " + certificateProblem(verify.Err) + "."
	case errors.As(err, &record):
		return ErrorTLS, "The receiver does not speak TLS on this port."
	case errors.As(err, &alert):
		return ErrorTLS, "The receiver refused the TLS handshake: " + sanitize([]byte(strings.TrimPrefix(alert.Error(), "tls: "))) + "."
	case strings.Contains(err.Error(), "tls: "):
		return ErrorTLS, "The TLS handshake with the receiver failed."
	case errors.Is(err, syscall.ECONNREFUSED):
		return ErrorRefused, "The connection was refused: nothing listens on this port."
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		strings.Contains(err.Error(), "server closed idle connection"):
		return ErrorClosed, "The receiver closed the connection without an answer."
	case errors.As(err, &op) && op.Op == "dial":
		if op.Timeout() {
			return ErrorTimeout, "No connection could be opened in time."
		}
		return ErrorUnreachable, "No connection to the receiver could be opened."
	}
	return ErrorResponse, "The receiver's answer was not valid HTTP."
}

func certificateProblem(err error) string {
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "it has expired, or is not valid yet"
	case errors.As(err, &host):
		return "it is for another host name"
	case errors.As(err, &authority):
		return "it was not issued by a known authority"
	}
	return "it does not stand up to verification"
}
