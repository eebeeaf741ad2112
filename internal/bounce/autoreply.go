// SPDX-License-Identifier: Apache-2.0

package bounce

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/message"
)

func containsAny(text string, list []string) bool {
	return slices.ContainsFunc(list, func(phrase string) bool { return containsPhrase(text, phrase) })
}

// daemons are sender names that mail systems use.
var daemons = []string{"mailer-daemon", "mailerdaemon", "postmaster", "mail-daemon", "maildaemon", "mail delivery", "mailer daemon", "mdaemon", "system administrator", "microsoft outlook", "mail system",
	"delivery subsystem", "administrator@", "bounce", "mmsc", "post_master", "no-reply@sns.amazonaws", "mail deliver"}

func fromDaemon(h message.Header) bool {
	return containsAny(strings.ToLower(h.Decoded("From")), daemons)
}

// isAutoReply reports whether the message is an automatic reply, by RFC 3834 §5 or older
// conventions.
func (p *reportParts) isAutoReply(subject string) bool {
	h := p.header
	auto := strings.ToLower(h.Unfolded("Auto-Submitted"))
	switch {
	case strings.HasPrefix(auto, "auto-replied"), strings.HasPrefix(auto, "auto-generated"), strings.HasPrefix(auto, "auto-notified"):
		return true
	case h.Unfolded("X-Autoreply") != "", h.Unfolded("X-Autorespond") != "", h.Unfolded("X-Autoresponder") != "", h.Unfolded("X-Auto-Reply-From") != "", h.Unfolded("X-Mail-Autoreply") != "":
		return true
	case strings.Contains(strings.ToLower(h.Unfolded("Precedence")), "auto_reply"), strings.EqualFold(h.Unfolded("X-Precedence"), "auto_reply"):
		return true
	}
	return containsAny(subject, []string{
		"out of office", "out of the office", "automatic reply", "auto reply", "autoreply", "auto-reply", "auto response", "autoresponse", "auto-response", "vacation", "away from", "on holiday", "abwesenheit", "automatische antwort",
		"ponse automatique", "respuesta automatica", "risposta automatica", "resposta automatica", "automatisch antwoord", "自動応答", "自动回复", "автоответ", "autosvar", "please confirm your", "verify your message",
		"we received your", "thank you for your", "thanks for contacting", "ticket", "away until",
	})
}

// isReplySubject reports whether a subject begins like that of a reply.
func isReplySubject(subject string) bool {
	return hasAnyPrefix(subject, []string{
		"re:", "re :", "re[", "aw:", "sv:", "vs:", "rv:", "odp:", "antw:", "antwort:", "auto:", "automatic reply", "auto reply", "autoreply", "auto-reply", "auto response", "autoresponse", "auto-response",
		"out of office", "out of the office", "abwesenheit", "automatische antwort", "reponse automatique", "respuesta automatica", "risposta automatica",
		"resposta automatica", "automatisch antwoord", "自動応答", "自动回复", "автоответ", "autosvar",
	})
}

func hasAnyPrefix(text string, list []string) bool {
	return slices.ContainsFunc(list, func(begin string) bool { return strings.HasPrefix(text, begin) })
}

func isBounceSubject(subject string) bool {
	return containsAny(subject, []string{
		"undeliver", "undelivered", "delivery fail", "delivery status", "delivery notification", "delivery report", "delivery problem", "failure notice", "returned mail", "returned to sender", "mail delivery", "delivery error",
		"could not be delivered", "couldn't be delivered", "not delivered", "failed delivery", "mail system error", "mail failure", "message failed", "delivery unsuccessful", "nondeliverable", "non-deliverable", "non-delivery", "unzustellbar",
		"non remis", "no entregado", "mancato recapito", "nicht zugestellt", "onbestelbaar", "delivery has failed", "warning: could not send", "failure delivery", "bounce", "mail could not be", "email error", "rejected:", "message status - undeliverable",
		"配信不能", "配信エラー", "送信エラー", "配信できません", "系统退信", "退信", "недоставлен", "не доставлено", "transport error",
	})
}

func isFailureText(text string) bool {
	return containsAny(text, []string{
		"could not be delivered", "couldn't be delivered", "can't be delivered", "cannot be delivered", "was not delivered", "wasn't delivered", "unable to deliver", "wasn't able to deliver", "not able to deliver", "delivery to the following",
		"delivery failed", "delivery has failed", "did not reach", "undeliverable", "permanent error", "permanent fatal errors", "undelivered", "failed to deliver", "had delivery errors", "had delivery problems", "returning message to sender",
		"transcript of session", "returned to sender", "failure reasons", "wird nicht zugestellt", "konnte nicht zugestellt", "n'a pas pu etre", "non e stato possibil", "no se pudo entregar", "could not deliver", "message was rejected", "mail was not sent",
		"user unknown", "host unknown", "no such user here", "invalid user address", "delivery was unsuccessful", "not be sent", "message delivery failed", "送信できませんでした", "配信できません", "届けられません", "不能投递", "无法投递", "не может быть доставлено", "error delivering", "undeliverable to",
		"not a member of this mailing list", "not allowed to post to this mailing list", "duplicated message-id in", // fml, Mailman
	})
}

func isDelayText(text, subject string) bool {
	return containsAny(text, []string{
		"you do not need to resend", "this is a warning message only", "will continue to be made", "will keep trying", "will try again", "still trying", "will be retried", "delivery attempts will continue", "has not yet been delivered", "warning: message still undelivered",
		"has not been delivered yet", "still be trying", "will continue trying", "continue attempting", "no action is required on your part", "has been delayed",
	}) && !containsAny(text, []string{"gave up", "giving up", "given up", "will not be retried", "no longer be", "permanent error"}) || strings.HasPrefix(subject, "delayed mail") || strings.Contains(subject, "status notification (delay)")
}

func isSuccessText(text, subject string) bool {
	return hasAnyPrefix(subject, []string{"delivered:", "relayed:", "expanded:"}) || // only at the start: elsewhere "could not be" may come before them
		containsAny(subject, []string{"successfully delivered", "successful mail delivery", "notification (success)", "notification (relay)"}) ||
		containsAny(text, []string{"was successfully delivered", "has been successfully delivered", "successfully relayed", "message has been delivered to the following"})
}
