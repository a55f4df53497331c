<?php
// $headers: names in lower case. $body: file_get_contents('php://input')
function verify(string $secret, array $headers, string $body): bool
{
    $id = $headers['webhook-id'];
    $at = $headers['webhook-timestamp'];
    if (abs(time() - (int) $at) > 300) {
        return false;
    }
    $key = base64_decode(preg_replace('/^whsec_/', '', $secret));
    $wanted = base64_encode(hash_hmac('sha256', "$id.$at.$body", $key, true));
    foreach (explode(' ', $headers['webhook-signature']) as $one) {
        if (hash_equals($wanted, preg_replace('/^v1,/', '', $one))) {
            return true;
        }
    }
    return false;
}
