// SPDX-License-Identifier: Apache-2.0

package client

// VerifyWebhookAt is VerifyWebhook at another time.
var VerifyWebhookAt = verifyWebhook
