import base64, hashlib, hmac, time

def verify(secret: str, headers, body: bytes) -> bool:
    """body: the bytes as they came, before anything parses them."""
    msg_id, at = headers["webhook-id"], headers["webhook-timestamp"]
    if abs(time.time() - int(at)) > 300:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{msg_id}.{at}.".encode() + body
    wanted = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    given = [s.removeprefix("v1,") for s in headers["webhook-signature"].split()]
    return any(hmac.compare_digest(wanted, one) for one in given)
