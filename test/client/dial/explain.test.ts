import { describe, expect, it } from 'vitest'
import {
  type AnswerFailure,
  type DialContext,
  type DialFailure,
  type DialPhase,
  explain,
  isRefusal,
} from '../../../client/dial/explain.ts'

const NOW_MS = Date.parse('2026-11-21T12:00:00Z')
const NOW_S = NOW_MS / 1000

function token(claims: Record<string, unknown>): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  return `${part({ alg: 'EdDSA' })}.${part(claims)}.c2ln`
}

const good = { sub: 'prod', aud: 'sallyport', iat: NOW_S - 60, exp: NOW_S + 3600 }

function context(more: Partial<DialContext> = {}): DialContext {
  return {
    server: new URL('wss://connect.example.com:8443'),
    token: token(good),
    audience: 'sallyport',
    nowMs: NOW_MS,
    proxy: undefined,
    clientCertificate: false,
    ...more,
  }
}

function answer(status: number, more: Partial<AnswerFailure> = {}): AnswerFailure {
  return {
    kind: 'answer',
    status,
    requestId: '7f3a',
    code: undefined,
    dateMs: NOW_MS,
    versions: undefined,
    ours: true,
    ...more,
  }
}

const network = (code: string, phase: DialPhase = 'connect'): DialFailure => ({
  kind: 'network',
  phase,
  code,
  message: 'it broke',
})

const certificate = (code: string, phase: 'proxy' | 'tls' = 'tls'): DialFailure => ({
  kind: 'certificate',
  phase,
  code,
  issuer: 'Corp Root CA',
  names: ['a.example.com', '127.0.0.1'],
  authority: undefined,
  validFromMs: NOW_MS + 7200_000,
  validToMs: NOW_MS - 3 * 86_400_000,
})

const proxy = { address: 'proxy.corp:3128', credentials: false }

const refused401 = 'refused (401, request 7f3a): '

const CASES: [string, DialFailure, DialContext, string][] = [
  [
    'an expired token',
    answer(401),
    context({ token: token({ ...good, exp: NOW_S - 190 }) }),
    `${refused401}your token expired 3 min 10 s ago`,
  ],
  [
    'an expired token, and no Date from the server',
    answer(401, { dateMs: undefined, requestId: undefined }),
    context({ token: token({ ...good, exp: NOW_S - 7200 }) }),
    'refused (401): your token expired 2 h ago',
  ],
  [
    'a clock that is ahead',
    answer(401, { dateMs: NOW_MS - 240_000 }),
    context(),
    `${refused401}your clock is 4 min ahead of the server's`,
  ],
  [
    'a clock that is ahead, and a token that is not valid at the server yet',
    answer(401, { dateMs: NOW_MS - 240_000 }),
    context({ token: token({ ...good, nbf: NOW_S - 60 }) }),
    `${refused401}your clock is 4 min ahead of the server's, and by that clock your token is not valid for another 3 min`,
  ],
  [
    'a clock that is behind, and a token that has expired at the server',
    answer(401, { dateMs: NOW_MS + 300_000 }),
    context({ token: token({ ...good, exp: NOW_S + 60 }) }),
    `${refused401}your clock is 5 min behind the server's, and by that clock your token expired 4 min ago`,
  ],
  [
    'a token that is not valid yet',
    answer(401),
    context({ token: token({ ...good, nbf: NOW_S + 90 }) }),
    `${refused401}your token is not valid for another 1 min 30 s`,
  ],
  [
    'another audience',
    answer(401),
    context({ token: token({ ...good, aud: ['frp', 'piko'] }) }),
    `${refused401}your token is for the audience "frp" and "piko", not for "sallyport"`,
  ],
  [
    'no audience',
    answer(401),
    context({ token: token({ ...good, aud: undefined }) }),
    `${refused401}your token names no audience; the server expects "sallyport"`,
  ],
  [
    'no runtime',
    answer(401),
    context({ token: token({ ...good, sub: undefined }) }),
    `${refused401}your token names no runtime (claim "sub")`,
  ],
  [
    'no end',
    answer(401),
    context({ token: token({ ...good, exp: undefined }) }),
    `${refused401}your token has no expiry (claim "exp"), which the server requires`,
  ],
  ['no JWT', answer(401), context({ token: 'hunter2' }), `${refused401}the token that you gave is not a JWT`],
  [
    'a token without a visible fault',
    answer(401),
    context(),
    `${refused401}the server did not accept your token for runtime "prod"; its log gives the reason under this request`,
  ],
  [
    'a token without a visible fault, with a client certificate',
    answer(401),
    context({ clientCertificate: true }),
    `${refused401}the server did not accept your token for runtime "prod" with your client certificate; its log gives the reason under this request`,
  ],
  [
    'something in front of the server that admits only whom it knows',
    answer(401, { ours: false, requestId: undefined, by: 'nginx' }),
    context(),
    'refused (401): the server, or a proxy in front of it, did not accept your token for runtime "prod" (whatever answered calls itself "nginx")',
  ],
  [
    'something in front of the server that admits nobody',
    answer(403, { ours: false, requestId: undefined, by: 'cloudflare' }),
    context(),
    'connect.example.com:8443 answered 403 instead of opening a WebSocket: it is not a control endpoint, or a proxy in front of it does not pass WebSockets (whatever answered calls itself "cloudflare")',
  ],
  [
    'a server that is full, or cannot check tokens',
    answer(503),
    context(),
    'refused (503, request 7f3a): the server accepts no clients right now; its log gives the reason under this request',
  ],
  [
    'a server whose revocation hook fails',
    answer(500),
    context(),
    'refused (500, request 7f3a): the server accepts no clients right now; its log gives the reason under this request',
  ],
  [
    'something in front of the server that fails',
    answer(500, { ours: false, requestId: undefined }),
    context(),
    'connect.example.com:8443 answered 500 instead of opening a WebSocket: it is not a control endpoint, or a proxy in front of it does not pass WebSockets',
  ],
  [
    'a load balancer without a server',
    answer(503, { ours: false, requestId: undefined }),
    context(),
    'refused (503): the server, or a proxy in front of it, accepts no clients right now',
  ],
  [
    'another protocol version',
    answer(400, { versions: 'sallyport.v2' }),
    context(),
    'connect.example.com:8443 speaks "sallyport.v2", and this client "sallyport.v1": update the older of the two',
  ],
  [
    'another protocol version that is not named',
    answer(400),
    context(),
    'connect.example.com:8443 speaks another version of the protocol, and this client "sallyport.v1": update the older of the two',
  ],
  [
    'a WebSocket without our subprotocol',
    { kind: 'subprotocol', got: undefined },
    context(),
    'connect.example.com:8443 speaks another version of the protocol, and this client "sallyport.v1": update the older of the two',
  ],
  [
    'the public port',
    answer(404, { code: 'unknown-host' }),
    context(),
    "connect.example.com:8443 is for callers, not for clients: dial the name of the server's --control.host, or the address of its --control.listen",
  ],
  [
    'the public port, where callers are checked',
    answer(401, { code: 'not-authenticated' }),
    context(),
    "connect.example.com:8443 is for callers, not for clients: dial the name of the server's --control.host, or the address of its --control.listen",
  ],
  [
    'something else',
    answer(200, { requestId: undefined, ours: false }),
    context({ server: new URL('wss://example.com') }),
    'example.com:443 answered 200 instead of opening a WebSocket: it is not a control endpoint, or a proxy in front of it does not pass WebSockets',
  ],
  [
    'a refused port',
    network('ECONNREFUSED'),
    context(),
    'nothing is listening at connect.example.com:8443 (connection refused)',
  ],
  ['a name that does not resolve', network('ENOTFOUND'), context(), 'the name connect.example.com does not resolve'],
  [
    'a resolver that does not answer',
    network('EAI_AGAIN'),
    context(),
    'the name connect.example.com cannot be resolved right now (the resolver fails, or does not answer)',
  ],
  [
    'no network',
    network('ENETUNREACH'),
    context(),
    'there is no route to connect.example.com:8443 from here (ENETUNREACH)',
  ],
  [
    'a reset in the handshake',
    network('ECONNRESET', 'tls'),
    context(),
    'connect.example.com:8443 closed the connection during the TLS handshake',
  ],
  [
    'a port without TLS',
    network('ERR_SSL_WRONG_VERSION_NUMBER', 'tls'),
    context(),
    'connect.example.com:8443 does not speak TLS: it may be a public port without TLS; dial the control port of the server',
  ],
  [
    'a proxy without TLS',
    network('ERR_SSL_WRONG_VERSION_NUMBER', 'proxy'),
    context({ proxy }),
    'the proxy proxy.corp:3128 does not speak TLS: write http:// in front of it instead of https://',
  ],
  [
    'old TLS',
    network('ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION', 'tls'),
    context(),
    'connect.example.com:8443 does not speak TLS 1.3: if something in front of the server is older, --tls.min 1.2 allows it',
  ],
  [
    'a missing client certificate',
    network('ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED', 'upgrade'),
    context(),
    'connect.example.com:8443 wants a client certificate: give --tls.cert and --tls.key',
  ],
  [
    'a client certificate that is not accepted, without a word',
    network('ECONNRESET', 'upgrade'),
    context({ clientCertificate: true }),
    'connect.example.com:8443 closed the connection without an answer: it may not accept the client certificate (--tls.cert)',
  ],
  [
    'a client certificate that is not accepted',
    network('ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED', 'upgrade'),
    context({ clientCertificate: true }),
    'connect.example.com:8443 did not accept the client certificate (--tls.cert)',
  ],
  [
    'no TLS in common',
    network('ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE', 'tls'),
    context(),
    'connect.example.com:8443: the TLS handshake failed (ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE)',
  ],
  [
    'a proxy that drops the subprotocol',
    answer(400, { versions: 'sallyport.v1' }),
    context(),
    'connect.example.com:8443 speaks "sallyport.v1", as this client does, but was not asked for it: a proxy in front of it does not pass Sec-WebSocket-Protocol',
  ],
  ['an unknown error', network('EPROTO', 'tls'), context(), 'connect.example.com:8443: it broke (EPROTO)'],
  [
    'silence',
    { kind: 'timeout', phase: 'tls', afterMs: 10_000 },
    context(),
    'no answer from connect.example.com:8443 to the TLS handshake within 10 s',
  ],
  [
    'an unknown CA',
    certificate('SELF_SIGNED_CERT_IN_CHAIN'),
    context(),
    `the certificate of connect.example.com:8443 was issued by "Corp Root CA", which is not trusted here: give that CA's certificate with --ca FILE`,
  ],
  [
    'a name not in the certificate',
    certificate('ERR_TLS_CERT_ALTNAME_INVALID'),
    context(),
    'the certificate of connect.example.com:8443 is for a.example.com and 127.0.0.1, not for connect.example.com',
  ],
  [
    'a proxy whose certificate is for another name',
    certificate('ERR_TLS_CERT_ALTNAME_INVALID', 'proxy'),
    context({ proxy }),
    'the certificate of the proxy proxy.corp:3128 is for a.example.com and 127.0.0.1, not for proxy.corp',
  ],
  [
    'a resolver that does not answer',
    { kind: 'timeout', phase: 'resolve', afterMs: 10_000 },
    context(),
    'no answer from the resolver to the name connect.example.com within 10 s',
  ],
  [
    'an expired certificate',
    certificate('CERT_HAS_EXPIRED'),
    context(),
    'the certificate of connect.example.com:8443 expired 3 d ago, or your clock is wrong',
  ],
  [
    'a certificate that is not valid yet',
    certificate('CERT_NOT_YET_VALID'),
    context(),
    'the certificate of connect.example.com:8443 is not valid for another 2 h, or your clock is wrong',
  ],
  [
    'a proxy that wants credentials',
    { kind: 'proxy', status: 407, scheme: 'Basic' },
    context({ proxy }),
    'the proxy proxy.corp:3128 wants credentials (407): write http://user:password@proxy.corp:3128',
  ],
  [
    'a proxy that does not accept these credentials',
    { kind: 'proxy', status: 407, scheme: 'Basic' },
    context({ proxy: { ...proxy, credentials: true } }),
    'the proxy proxy.corp:3128 did not accept the credentials (407)',
  ],
  [
    'a proxy that wants another scheme',
    { kind: 'proxy', status: 407, scheme: 'Negotiate' },
    context({ proxy }),
    'the proxy proxy.corp:3128 wants Negotiate authentication (407), but this client supports only Basic',
  ],
  [
    'a proxy that forbids the connection',
    { kind: 'proxy', status: 403, scheme: undefined },
    context({ proxy }),
    'the proxy proxy.corp:3128 did not connect to connect.example.com:8443 (it answered 403)',
  ],
  [
    'a proxy where nothing listens',
    network('ECONNREFUSED'),
    context({ proxy }),
    'nothing is listening at the proxy proxy.corp:3128 (connection refused)',
  ],
  [
    'a proxy whose name does not resolve',
    network('ENOTFOUND'),
    context({ proxy }),
    'the name proxy.corp does not resolve',
  ],
]

describe('explain', () => {
  it.each(CASES)('%s', (_name, failure, known, message) => {
    expect(explain(failure, known)).toBe(message)
  })

  it('never shows the token', () => {
    const secret = token({ ...good, sub: 'prod' })
    for (const [, failure, known] of CASES) expect(explain(failure, { ...known, token: secret })).not.toContain(secret)
  })
})

describe('isRefusal', () => {
  it('is true if another attempt soon would be useless', () => {
    expect([401, 426].map(status => isRefusal(answer(status)))).toEqual([true, true])
    expect(isRefusal({ kind: 'subprotocol', got: 'chat' })).toBe(true)
    expect(isRefusal(answer(400))).toBe(true)
  })

  it('is false for what may pass', () => {
    expect([403, 429, 500, 503].map(status => isRefusal(answer(status)))).toEqual([false, false, false, false])
    expect(isRefusal(answer(400, { ours: false }))).toBe(false)
    expect(isRefusal(network('ECONNREFUSED'))).toBe(false)
    expect(isRefusal({ kind: 'proxy', status: 407, scheme: 'Basic' })).toBe(false)
  })
})
