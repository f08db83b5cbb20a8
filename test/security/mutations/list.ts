/**
 * Defences, and how to remove each. The text that is replaced occurs exactly once in the sources. Where two lines
 * defend the same thing, both go.
 */
export interface Mutation {
  readonly defence: string
  readonly edits: readonly (readonly [file: string, find: string, replace: string])[]
  /** The tests that must fail. */
  readonly tests: readonly string[]
}

const HTTP1 = ['test/security/edge-http1.test.ts']
const HTTP2 = ['test/security/edge-translation.test.ts', 'test/security/edge-http2.test.ts']
const CONTROL = ['test/security/control.test.ts']
const DOORS = ['test/security/doors.test.ts']
const CERTIFICATES = ['test/security/certificates.test.ts']
const TOKENS = ['test/security/tokens.test.ts']
const OPTIONS = ['test/security/options.test.ts']
const YAMUX = ['test/security/yamux.test.ts']
const ROUTER = ['test/security/router.test.ts']
const CAPTURED_NAMES = ['test/router/upstream/captured-names.test.ts']
const ADMIN = ['test/security/admin.test.ts']
const NETWORK_SHARES = ['test/router/upstream/network-shares.test.ts']
const HTTP2_SHARING = ['test/router/upstream/http2-sharing.test.ts']
const OPEN_SOCKETS = ['test/router/upstream/open-sockets.test.ts']
const SEEN_HEADS = ['test/protocol/http/head-cache.test.ts']
const SEEN_BYTES = ['test/protocol/base/byte-cache.test.ts']
const OWN_BYTES = ['test/protocol/base/own-bytes.test.ts']
const SEND_QUEUE = ['test/protocol/wire/yamux/send-queue.test.ts']
const WRITER = ['test/protocol/wire/yamux/writer.test.ts']
const INBOX_MAC = ['test/server/inbox/mac.test.ts']
const DUPLICATES = ['test/server/inbox/duplicates.test.ts']
const REMEMBERED = ['test/protocol/remembered.test.ts']

export const MUTATIONS: readonly Mutation[] = [
  // Inbox
  {
    defence: 'a webhook without a MAC is not delivered',
    edits: [['server/inbox/mac.ts', 'mac === undefined && this.#options.optional', 'mac === undefined']],
    tests: INBOX_MAC,
  },
  {
    defence: "a webhook's MAC covers its runtime, lane and id",
    edits: [['server/inbox/mac.ts', "['id', 'runtime', 'lane', ", '[']],
    tests: INBOX_MAC,
  },
  {
    defence: "a part's MAC covers its webhook and position",
    edits: [['server/inbox/mac.ts', "['part', runtime, id, n]", "['part', runtime === id && n]"]],
    tests: INBOX_MAC,
  },
  {
    defence: 'the MAC of rules covers their runtime',
    edits: [['server/inbox/mac.ts', "#isGood(mac, ['rules', runtime,", "#isGood(mac, ['rules', 'demo',"]],
    tests: INBOX_MAC,
  },
  {
    defence: 'rules without a MAC are ignored',
    edits: [
      [
        'server/inbox/mac.ts',
        "const isGood = this.#isGood(mac, ['rules', runtime, announced, at])",
        'const isGood = mac !== this',
      ],
    ],
    tests: INBOX_MAC,
  },
  {
    defence: 'a webhook that is signed otherwise is no duplicate',
    edits: [['server/inbox/identity.ts', 'name === signature || SIGNED.has(name) ||', 'false ||']],
    tests: DUPLICATES,
  },
  {
    defence: 'a webhook that nobody has verified takes the place of no other',
    edits: [['server/inbox/identity.ts', '(!isVerified && isTimed)', 'false']],
    tests: DUPLICATES,
  },
  {
    defence: 'a webhook that the edge has verified is no duplicate of one without a signature',
    edits: [['server/inbox/identity.ts', 'else if (isTimed)', 'else if (false)']],
    tests: DUPLICATES,
  },
  // Edge, HTTP/1.1
  {
    defence: 'a repeated head keeps its own body length',
    edits: [['protocol/http/head-cache.ts', 'seen.bodyBytes !== bodyBytes || ', '']],
    tests: SEEN_HEADS,
  },
  {
    defence: 'a repeated head keeps its own framing and connection fields',
    edits: [['protocol/http/head-cache.ts', 'seen.about !== about || ', '']],
    tests: SEEN_HEADS,
  },
  {
    defence: 'an upstream is told the current caller, not the previous one',
    edits: [['protocol/base/memoize-last.ts', 'a !== lastA || ', '']],
    tests: REMEMBERED,
  },
  {
    defence: 'a request keeps its own authority',
    edits: [['protocol/base/memoize-last.ts', ' || c !== lastC', '']],
    tests: REMEMBERED,
  },
  {
    defence: 'a preamble names its own runtime',
    edits: [['protocol/base/memoize-last.ts', 'b !== lastB || ', '']],
    tests: REMEMBERED,
  },
  {
    defence: 'a head that begins like another one is parsed separately',
    edits: [['protocol/base/byte-cache.ts', 'seen.length !== length || ', '']],
    tests: SEEN_BYTES,
  },
  {
    defence: 'a head of the same length as another one is parsed separately',
    edits: [['protocol/base/byte-cache.ts', ' || seen.bytes.compare(bytes, at, end, 0, length) !== 0', '']],
    tests: SEEN_BYTES,
  },
  {
    defence: 'content-length together with transfer-encoding',
    edits: [['protocol/http/http1/request-head.ts', 'if (head.contentLength !== -1) throw', 'if (false) throw']],
    tests: HTTP1,
  },
  {
    defence: 'transfer-encoding is only chunked',
    edits: [
      ['protocol/http/http1/request-head.ts', "if (head.transferEncoding !== 'chunked') throw", 'if (false) throw'],
    ],
    tests: HTTP1,
  },
  {
    defence: 'no transfer-encoding on HTTP/1.0',
    edits: [['protocol/http/http1/request-head.ts', 'if (head.minor === 0) throw', 'if (false) throw']],
    tests: HTTP1,
  },
  {
    defence: 'one content-length',
    edits: [['protocol/http/http1/head-parser.ts', 'if (head.contentLength !== -1) throw', 'if (false) throw']],
    tests: HTTP1,
  },
  {
    defence: 'content-length consists of digits',
    edits: [['protocol/http/headers.ts', 'if (digit < 0 || digit > 9) return -1', '']],
    tests: HTTP1,
  },
  {
    defence: 'lines end with CRLF',
    edits: [
      [
        'protocol/http/http1/head-parser.ts',
        "if (at + 1 >= end || bytes[at] !== CR || bytes[at + 1] !== LF) throw this.fault('bad-request', 'field value')",
        'if (bytes[at] === LF) at--',
      ],
    ],
    tests: HTTP1,
  },
  {
    defence: 'bytes of a head whose lines never end',
    edits: [['protocol/http/http1/head-reader.ts', 'if (long ||', 'if (']],
    tests: ['test/protocol/http/http1/head-reader.test.ts'],
  },
  {
    defence: 'a name before each colon',
    edits: [
      [
        'protocol/http/http1/head-parser.ts',
        'if (at === nameStart || bytes[at] !== COLON)',
        'if (bytes[at] !== COLON)',
      ],
    ],
    tests: HTTP1,
  },
  {
    defence: 'bound on chunk extensions',
    edits: [['protocol/http/http1/body-reader.ts', '++this.#extensionBytes > MAX_EXTENSION_BYTES', 'false']],
    tests: HTTP1,
  },
  {
    defence: 'bound on chunk sizes',
    edits: [['protocol/http/http1/body-reader.ts', '++this.#digits > MAX_SIZE_DIGITS', '++this.#digits < 0']],
    tests: HTTP1,
  },
  {
    defence: 'drain or close after an early answer',
    edits: [
      [
        'protocol/http/http1/server-connection.ts',
        "    this.#state = 'drain'\n",
        "    this.#state = 'readHead'\n    this.#headBegun = false\n",
      ],
    ],
    tests: HTTP1,
  },
  {
    defence: 'on attached servers, a refused head ends its connection',
    edits: [
      [
        'protocol/http/http1/mount.ts',
        '    response.shouldKeepAlive = false\n    const { socket }',
        '    const { socket }',
      ],
    ],
    tests: HTTP1,
  },
  {
    defence: 'on attached servers, an odd Expect does not hide a head',
    edits: [
      [
        'protocol/http/http1/mounts.ts',
        "readonly Event[] = ['request', 'checkExpectation', 'upgrade']",
        "readonly Event[] = ['request', 'upgrade']",
      ],
    ],
    tests: HTTP1,
  },
  {
    defence: 'bytes after an Upgrade request wait for the 101',
    edits: [
      [
        'protocol/http/http1/server-connection.ts',
        'if (!head.keepAlive || this.#closing || head.request.upgrade) return false',
        'if (!head.keepAlive || this.#closing) return false',
      ],
    ],
    tests: HTTP1,
  },
  {
    defence: 'the key of a WebSocket',
    edits: [['protocol/http/http1/request-head.ts', 'isWebSocketKey(head.webSocketKey) &&', '']],
    tests: HTTP1,
  },
  {
    defence: 'a WebSocket is a GET',
    edits: [['protocol/http/http1/request-head.ts', "head.method === 'GET' &&", '']],
    tests: HTTP1,
  },
  {
    defence: 'a 101 must match the request',
    edits: [
      ['protocol/http/http1/client-connection.ts', 'if (accept !== webSocketAccept(key)) throw', 'if (false) throw'],
    ],
    tests: HTTP1,
  },
  {
    defence: 'a pipeline gives other connections a turn',
    edits: [['protocol/http/http1/server-connection.ts', 'this.#mayBegin === 0', 'false']],
    tests: ['test/protocol/http/http1/server-connection.test.ts'],
  },
  {
    defence: 'requests of many connections leave others their turns',
    edits: [['protocol/base/socket-turns.ts', ' || performance.now() > until', '']],
    tests: ['test/protocol/base/socket-turns.test.ts', 'test/protocol/http/begin-later.test.ts'],
  },
  {
    defence: 'a socket whose bytes take long leaves others their turns',
    edits: [['protocol/base/socket-turns.ts', '    this.#stop()\n    resting.add(this)', '    resting.add(this)']],
    tests: ['test/protocol/base/socket-turns.test.ts'],
  },
  {
    defence: 'a pause of TLS stops reading at once',
    edits: [['protocol/http/http1/socket-reader.ts', '      if (turns.canPause) pauseWith(socket, turns)\n', '']],
    tests: ['test/protocol/http/http1/socket-reader.test.ts'],
  },
  {
    defence: 'a pause of what Node reads by itself stops reading at once',
    edits: [['protocol/base/read-pause.ts', '    this.#turns.pause()\n    // `node:http`', '    // `node:http`']],
    tests: ['test/protocol/http/http1/mounted-pause.test.ts'],
  },
  {
    defence: 'many sockets with short reads leave others their turns',
    edits: [['protocol/base/socket-turns.ts', 'const LONG_TURN_MS = 8', 'const LONG_TURN_MS = 1e9']],
    tests: ['test/protocol/base/socket-turns.test.ts'],
  },
  {
    defence: 'many streams of a runtime leave others their turns on a link',
    edits: [['protocol/wire/yamux/send-turns.ts', '({ runtime }) => runtime', "() => ''"]],
    tests: ['test/protocol/wire/yamux/writer.test.ts'],
  },
  {
    defence: 'many streams of a network leave others their turns on a session',
    edits: [['protocol/wire/yamux/send-turns.ts', '  return network\n', "  return ''\n"]],
    tests: ['test/protocol/wire/yamux/writer.test.ts'],
  },
  {
    defence: 'small messages leave bodies some turns',
    edits: [['protocol/wire/yamux/outgoing.ts', 'this.#freshBytes >= FRESH_BYTES', 'false']],
    tests: ['test/protocol/wire/yamux/writer.test.ts'],
  },
  {
    defence: 'a stopped reader is cut (stalledMs)',
    edits: [
      [
        'protocol/http/http1/server-connection.ts',
        "'the caller stopped reading')\n    this.drop(",
        "'the caller stopped reading')\n    this.destroy(",
      ],
    ],
    tests: ['test/protocol/http/listener.test.ts'],
  },
  {
    defence: 'a request begins only while few answers wait',
    edits: [
      [
        'protocol/http/http1/server-connection.ts',
        'if (this.#writer.held > this.#limits.bufferBytes) {',
        'if (false) {',
      ],
    ],
    tests: ['test/security/edge-pipelines.test.ts'],
  },
  {
    defence: 'a reset is noticed while we do not read',
    edits: [
      [
        'protocol/http/http1/server-connection.ts',
        "if (unheard && !isEnded && isBroken(this.#socket)) this.destroy('cancelled')",
        '',
      ],
    ],
    tests: ['test/security/edge-callers.test.ts'],
  },
  {
    defence: 'complete requests before a FIN are answered',
    edits: [
      [
        'protocol/http/http1/server-connection.ts',
        'if (this.#halfClosed && this.#intake.bytes === undefined) return false',
        'if (this.#halfClosed) return false',
      ],
    ],
    tests: ['test/security/edge-pipelines.test.ts'],
  },
  {
    defence: 'request loops are stopped',
    edits: [['protocol/http/loop-guard.ts', 'if (passed >= MOST_PASSES) return false', '']],
    tests: ['test/security/edge-loops.test.ts'],
  },
  {
    defence: 'exactly one Host',
    edits: [['protocol/http/http1/request-head.ts', 'if (head.hosts > 1 ||', 'if (']],
    tests: HTTP1,
  },
  {
    defence: 'the grammar of an authority',
    edits: [
      [
        'protocol/http/headers.ts',
        'return match !== null && (match[1] === undefined || isAsRead(match[1]))',
        'return match !== undefined',
      ],
    ],
    tests: HTTP1,
  },
  {
    defence: 'the spelling of an address',
    edits: [['protocol/http/headers.ts', ' && (match[1] === undefined || isAsRead(match[1]))', '']],
    tests: HTTP1,
  },
  {
    defence: 'CONNECT and TRACE end here',
    edits: [
      [
        'protocol/http/http1/request-head.ts',
        "if (staysHere(head.method)) throw new SallyportError('method-not-allowed')",
        '',
      ],
    ],
    tests: HTTP1,
  },
  {
    defence: 'number of fields (headFields)',
    edits: [['protocol/http/http1/head-parser.ts', 'if (++count * 2 > most) throw', 'if (false) throw']],
    tests: HTTP1,
  },
  {
    defence: 'length of a URI (uriBytes)',
    edits: [
      ['protocol/http/http1/head-parser.ts', 'if (at - targetStart > this.#limits.uriBytes) throw', 'if (false) throw'],
    ],
    tests: HTTP1,
  },
  {
    defence: 'a response has one length',
    edits: [
      [
        'protocol/http/http1/client-connection.ts',
        "if (contentLength !== -1) throw brokenUpstream('transfer-encoding and content-length')",
        '',
      ],
    ],
    tests: HTTP1,
  },
  // Edge, HTTP/2
  {
    defence: 'a 2xx does not accept an extended CONNECT',
    edits: [
      [
        'protocol/http/http2/server-exchange.ts',
        'if (upgrade && !this.#raw && status < 300) throw',
        'if (false) throw',
      ],
    ],
    tests: HTTP2,
  },
  {
    defence: 'one authority over HTTP/2',
    edits: [
      [
        'protocol/http/http2/request-head.ts',
        '(named !== undefined && host !== undefined && named !== host)',
        '(false)',
      ],
    ],
    tests: HTTP2,
  },
  {
    defence: 'the grammar of :path',
    edits: [
      [
        'protocol/http/http2/request-head.ts',
        "if (!isPath(path) && !(path === '*' && method === 'OPTIONS')) throw badHead(':path')",
        '',
      ],
    ],
    tests: HTTP2,
  },
  {
    defence: 'resets are counted',
    edits: [['protocol/http/http2/server-session.ts', '!this.#resets.take()', 'false']],
    tests: HTTP2,
  },
  {
    defence: 'a reset with NO_ERROR is noticed',
    edits: [
      [
        'protocol/http/http2/connection.ts',
        'stream.lose(uint32At(payload, 0))',
        'if (uint32At(payload, 0) !== 0) stream.lose(uint32At(payload, 0))',
      ],
    ],
    tests: ['test/security/edge-http2-ends.test.ts'],
  },
  {
    defence: 'the end of a body that arrived with its head is noticed',
    edits: [
      [
        'protocol/http/http2/stream.ts',
        '    this.readAt = performance.now()\n    this.#release()\n  }\n\n  /** The owner wants no more',
        '    this.readAt = performance.now()\n  }\n\n  /** The owner wants no more',
      ],
    ],
    tests: ['test/protocol/http/http2/request-body.test.ts'],
  },
  {
    defence: 'what complete answers hold is bounded for all connections',
    edits: [['protocol/http/http2/server-session.ts', '    if (bytes > 0) this.#unread?.enforce()\n', '']],
    tests: ['test/protocol/http/http2/session-ends.test.ts'],
  },
  {
    defence: 'data behind an early answer stays counted',
    edits: [
      [
        'protocol/http/http2/server-exchange.ts',
        '    this.#cutsRequest = true\n',
        "    this.#tell(new SallyportError('cancelled'))\n    this.#cutsRequest = true\n",
      ],
    ],
    tests: ['test/security/edge-http2-early.test.ts'],
  },
  {
    defence: 'an early answer is read before its stream is reset',
    edits: [
      [
        'protocol/http/http2/server-exchange.ts',
        '      this.#releaseUnsent()\n      this.#endEarly()\n',
        '      this.#releaseUnsent()\n      this.#endEarly()\n      this.#reset(CODE.noError)\n',
      ],
    ],
    tests: ['test/security/edge-http2-early.test.ts'],
  },
  {
    defence: 'behind an early answer, its caller can send the rest of its body',
    edits: [
      [
        'protocol/http/http2/stream.ts',
        '    if (this.remoteEnded || this.closed) return\n',
        "    if (this.remoteEnded || this.closed || (this.localEnded && this.#use === 'dropped')) return\n",
      ],
    ],
    tests: ['test/security/edge-http2-early.test.ts'],
  },
  {
    defence: 'a caller over HTTP/2 that goes on sending behind its answer has lingerMs',
    edits: [['protocol/http/http2/server-exchange.ts', 'due(since, lingerMs, now, end)', 'Number.POSITIVE_INFINITY']],
    tests: ['test/security/edge-http2-early.test.ts'],
  },
  {
    defence: 'a caller over HTTP/2 that reads no answers begins no more requests',
    edits: [['protocol/http/http2/server-session.ts', 'this.#context.unsentBytes > MAX_UNSENT_BYTES', 'false']],
    tests: ['test/security/edge-http2-unread.test.ts'],
  },
  {
    defence: 'requests over HTTP/2 that wait to begin count',
    edits: [['protocol/http/http2/server-session.ts', ' + this.#arrivedBytes', '']],
    tests: ['test/protocol/http/begin-later.test.ts'],
  },
  {
    defence: 'frames that carry nothing are counted',
    edits: [
      [
        'protocol/http/http2/control-bytes.ts',
        'if (surplus - this.#surplus > (limit * (now - this.#lookedAt)) / 1000) tooMany()',
        'if (surplus < 0) tooMany()',
      ],
    ],
    tests: HTTP2,
  },
  {
    defence: 'DATA that carries nothing is counted on every stream',
    edits: [['protocol/http/http2/connection.ts', '!(last && isReceived)', '!last']],
    tests: HTTP2,
  },
  {
    defence: 'streams of a connection (http2Streams)',
    edits: [['protocol/http/http2/connection.ts', 'maxConcurrentStreams: http2Streams }', '}']],
    tests: HTTP2,
  },
  {
    defence: 'decoded bytes of a head (headBytes)',
    edits: [
      ['protocol/http/http2/request-head.ts', 'if (head.bytes > limits.headBytes) throw', 'if (false) throw'],
      ['protocol/http/http2/connection.ts', 'new HeaderBlocks(limits.headBytes,', 'new HeaderBlocks(1e6,'],
    ],
    tests: HTTP2,
  },
  {
    defence: 'trailers cannot name the caller',
    edits: [
      ['protocol/http/headers.ts', 'has(dashed(name)) || isForwardedName(name)', 'has(dashed(name))'],
      ['protocol/http/headers.ts', 'isNoTrailer(name) || isClaim(name)', 'isNoTrailer(name)'],
    ],
    tests: HTTP2,
  },
  // Control endpoint
  {
    defence: 'subprotocol',
    edits: [['server/control/handshake.ts', 'if (!protocols.includes(SUBPROTOCOL))', 'if (false)']],
    tests: CONTROL,
  },
  {
    defence: 'no browsers',
    edits: [['server/control/handshake.ts', 'if (request.headers.origin !== undefined)', 'if (false)']],
    tests: CONTROL,
  },
  {
    defence: 'one Authorization header',
    edits: [
      [
        'server/control/handshake.ts',
        'if (value !== undefined) return',
        'if (value !== undefined) continue\n    if (false) return',
      ],
    ],
    tests: CONTROL,
  },
  {
    defence: 'fragment limit',
    edits: [['protocol/wire/transport.ts', '  maxFragments: 16,\n', '']],
    tests: ['test/protocol/wire/transport-websocket.test.ts'],
  },
  {
    defence: 'length of a message',
    edits: [['protocol/wire/transport.ts', 'maxPayload: MAX_MESSAGE_BYTES,', 'maxPayload: 0,']],
    tests: ['test/protocol/wire/transport-websocket.test.ts'],
  },
  {
    defence: 'fields of an answer that a session cannot carry',
    edits: [['protocol/wire/bhttp/encode.ts', '  checkFields(headers)\n', '']],
    tests: ['test/protocol/wire/exchange/exchange.test.ts'],
  },
  {
    defence: 'an unsafe request that may have been executed is never asked for again',
    edits: [
      [
        'server/edge/retry-policy.ts',
        '!unsent && refusal === undefined && !isRepeatable',
        "error.reason === 'session-lost' && !isRepeatable",
      ],
    ],
    tests: ['test/server/edge/may-have-run.test.ts'],
  },
  {
    defence: 'no compression',
    edits: [['protocol/wire/transport.ts', '  perMessageDeflate: false,\n', '  perMessageDeflate: true,\n']],
    tests: CONTROL,
  },
  {
    defence: 'deadline of a handshake (handshakeMs)',
    edits: [
      [
        'server/control/accept-queue.ts',
        'const timer = setTimeout(heardFirst(cut), this.#options.limits.handshakeMs)',
        'const timer = setTimeout(() => {}, 1)',
      ],
    ],
    tests: CONTROL,
  },
  {
    defence: 'queue of one address (handshakesWaitingPerAddress)',
    edits: [['server/control/admission.ts', 'options.maxWaiting, options.maxPerAddress', 'options.maxWaiting']],
    tests: ['test/server/admission.test.ts'],
  },
  {
    defence: 'half a ClientHello starts no TLS handshake',
    edits: [['server/control/waiting-socket.ts', 'readServerName(this.#seen).done', 'this.#seen.length > 0']],
    tests: CONTROL,
  },
  {
    defence: '`reset` messages are counted',
    edits: [
      [
        'protocol/wire/yamux/yamux-session.ts',
        'if (stream === undefined || stream.resetCode !== undefined) this.#countReset()',
        'if (stream === undefined) return true',
      ],
    ],
    tests: YAMUX,
  },
  {
    defence: 'handshakes in progress (handshakesUnderWay)',
    edits: [['server/control/accept-queue.ts', 'this.#underWay.makeRoom(address)', '']],
    tests: CONTROL,
  },
  {
    defence: 'connection slots are shared among networks',
    edits: [['protocol/base/connection-slots.ts', 'idlest(greediest) ?? newest ?? idlest(own)', 'undefined']],
    tests: DOORS,
  },
  {
    defence: 'an IPv6 /64 is one network',
    edits: [['protocol/base/address.ts', "Buffer.from(bytes.subarray(0, 8)).toString('hex')", 'address']],
    tests: [...DOORS, 'test/protocol/base/connection-slots.test.ts'],
  },
  {
    defence: 'the deadline of a draining session only moves closer',
    edits: [['server/control/session-drain.ts', 'if (endsAt >= this.#endsAt) return', '']],
    tests: CONTROL,
  },
  {
    defence: 'only TLS 1.3',
    edits: [
      [
        'protocol/base/tls-profile.ts',
        "minVersion: 'TLSv1.3', ciphers: SUITES.join(':')",
        "minVersion: 'TLSv1.2', ciphers: [...SUITES, 'ECDHE-ECDSA-AES128-GCM-SHA256'].join(':')",
      ],
    ],
    tests: [...CONTROL, 'test/suites/tls.test.ts'],
  },
  {
    defence: 'no renegotiation',
    edits: [['protocol/base/tls-profile.ts', 'secureOptions: constants.SSL_OP_NO_RENEGOTIATION', 'secureOptions: 0']],
    tests: ['test/suites/tls.test.ts'],
  },
  {
    defence: "the guidelines' groups",
    edits: [
      [
        'protocol/base/tls-profile.ts',
        "const GROUPS = [...HYBRID, 'X25519', 'prime256v1', 'secp384r1'].join(':')",
        "const GROUPS = 'auto'",
      ],
    ],
    tests: ['test/suites/tls.test.ts'],
  },
  {
    defence: "a stream belongs to its session's runtime",
    edits: [['client/exchanges.ts', 'preamble.runtime !== session.runtime || ', '']],
    tests: ['test/client/exchanges.test.ts'],
  },
  {
    defence: 'a fresh token names the same runtime',
    edits: [['server/auth/authenticator.ts', 'if (identity.runtime !== runtime) throw', 'if (false) throw']],
    tests: CONTROL,
  },
  // Tokens
  {
    defence: 'algorithm list',
    edits: [
      [
        'server/auth/verifier.ts',
        "typeof header.alg !== 'string' || !this.#algorithms.includes(header.alg)",
        "typeof header.alg !== 'string'",
      ],
      ['server/auth/verifier.ts', 'const options = { algorithms: this.#algorithms }', 'const options = {}'],
    ],
    tests: TOKENS,
  },
  {
    defence: 'audience',
    edits: [
      ['server/auth/claims.ts', "if (!list.includes(expected)) throw new TokenRefused('aud', 'another audience')", ''],
    ],
    tests: TOKENS,
  },
  {
    defence: 'issuer',
    edits: [
      [
        'server/auth/claims.ts',
        "if (issuer !== undefined && textClaim(payload, 'iss') !== issuer) throw",
        'if (false) throw',
      ],
    ],
    tests: TOKENS,
  },
  {
    defence: 'expiry',
    edits: [['server/auth/claims.ts', 'if (!(nowS < expiresAt + clockToleranceS)) throw', 'if (false) throw']],
    tests: TOKENS,
  },
  {
    defence: 'without a time, every token is refused',
    edits: [['server/auth/claims.ts', '!(nowS < expiresAt + clockToleranceS)', 'nowS >= expiresAt + clockToleranceS']],
    tests: TOKENS,
  },
  {
    defence: 'a clock in seconds is refused',
    edits: [['server/options.ts', "typeof now === 'number' && now >= EARLIEST_MS && now <= LATEST_MS", 'true']],
    tests: OPTIONS,
  },
  {
    defence: 'an option is not null',
    edits: [['protocol/base/members.ts', 'value !== undefined && !kind.is(value)', 'value != null && !kind.is(value)']],
    tests: OPTIONS,
  },
  {
    defence: 'a token has an exp',
    edits: [
      [
        'server/auth/claims.ts',
        "if (exp === undefined) throw new TokenRefused('exp', 'the token has no exp')",
        'if (exp === undefined) return {} as never',
      ],
    ],
    tests: TOKENS,
  },
  {
    defence: 'a runtime is a DNS label',
    edits: [
      [
        'server/auth/claims.ts',
        "if (typeof runtime !== 'string' || !isRuntimeName(runtime))",
        "if (typeof runtime !== 'string')",
      ],
    ],
    tests: [...TOKENS, ...CONTROL],
  },
  {
    defence: 'members of a token are unique',
    edits: [['server/auth/json.ts', 'isRecord(value) && countMembers(value) === countColons(text)', 'isRecord(value)']],
    tests: [...TOKENS, ...CONTROL],
  },
  {
    defence: 'crit, b64, enc and zip',
    edits: [
      [
        'server/auth/verifier.ts',
        "if ('crit' in header || 'b64' in header || 'enc' in header || 'zip' in header)",
        'if (false)',
      ],
    ],
    tests: TOKENS,
  },
  {
    defence: 'one spelling of base64url',
    edits: [
      [
        'server/auth/verifier.ts',
        "return part.length > 0 && Buffer.from(part, 'base64url').toString('base64url') === part",
        'return part.length > 0',
      ],
    ],
    tests: TOKENS,
  },
  {
    defence: 'length of a token',
    edits: [['server/auth/verifier.ts', 'if (token.length > MAX_TOKEN_BYTES) throw', 'if (false) throw']],
    tests: TOKENS,
  },
  {
    defence: 'cool-down of the key set',
    edits: [['server/auth/polled-document.ts', '< coolDownMs) return false', '< 0) return false']],
    tests: TOKENS,
  },
  // Certificates
  {
    defence: 'client certificates are checked',
    edits: [
      ['server/control/endpoint.ts', '...ASKING, rejectUnauthorized: true', '...ASKING, rejectUnauthorized: false'],
    ],
    tests: CERTIFICATES,
  },
  {
    defence: 'certificate and token name one runtime',
    edits: [
      [
        'server/auth/authenticator.ts',
        "throw new TokenRefused('cnf', 'the certificate names another runtime than the token')",
        'return',
      ],
    ],
    tests: CERTIFICATES,
  },
  {
    defence: 'a bound token needs its certificate',
    edits: [
      [
        'server/auth/authenticator.ts',
        "throw new TokenRefused('cnf', 'the token is bound to another certificate')",
        'return',
      ],
    ],
    tests: CERTIFICATES,
  },
  {
    defence: "the client checks the server's certificate",
    edits: [['client/dial/dial.ts', 'if (socket.authorized) resolve(socket)', 'if (true) resolve(socket)']],
    tests: CERTIFICATES,
  },
  {
    defence: 'a bad certificate file keeps the old one',
    edits: [
      [
        'server/tls.ts',
        "'the new certificate is bad; the old one stays')\n      return false",
        "'the new certificate is bad; the old one stays')\n      throw error",
      ],
    ],
    tests: CERTIFICATES,
  },
  {
    defence: 'private keys are 0600',
    edits: [['certs/files.ts', 'const mode = file.secret ? 0o600 : 0o644', 'const mode = 0o644']],
    tests: CERTIFICATES,
  },
  // yamux
  {
    defence: 'window check',
    edits: [
      [
        'protocol/wire/yamux/incoming.ts',
        'if (length > stream.receive.openBytes) this.#owner.violated',
        'if (false) this.#owner.violated',
      ],
    ],
    tests: YAMUX,
  },
  {
    defence: 'credit overflow',
    edits: [
      ['protocol/wire/yamux/incoming.ts', 'if (stream.sendWindowBytes + length > MAX_CREDIT_BYTES) {', 'if (false) {'],
    ],
    tests: YAMUX,
  },
  {
    defence: 'parity and order of ids',
    edits: [
      [
        'protocol/wire/yamux/yamux-session.ts',
        'if ((id & 1) === (this.#nextId & 1) || id <= this.#lastPeerId) {',
        'if (false) {',
      ],
    ],
    tests: YAMUX,
  },
  {
    defence: 'streams of a session',
    edits: [
      [
        'protocol/wire/yamux/yamux-session.ts',
        'this.#goAwaySent || this.#streams.size >= this.#limits.maxStreams',
        'this.#goAwaySent',
      ],
    ],
    tests: YAMUX,
  },
  {
    defence: 'write deadline',
    edits: [
      [
        'protocol/wire/yamux/deadlines.ts',
        'else if (now - stalledSince >= this.#limits.writeDeadlineMs)',
        'else if (now < 0)',
      ],
    ],
    tests: YAMUX,
  },
  {
    defence: 'nothing after FIN',
    edits: [
      [
        'protocol/wire/yamux/incoming.ts',
        "else if (length > 0 && stream.finReceived) this.#owner.violated('data after FIN')\n",
        '\n',
      ],
    ],
    tests: YAMUX,
  },
  {
    defence: 'small chunks that wait for a stream own their memory',
    edits: [
      [
        'protocol/wire/yamux/send-queue.ts',
        'waiting < PASSING_CHUNKS ? passing(chunk) : this.#kept(chunk)',
        'passing(chunk)',
      ],
    ],
    tests: OWN_BYTES,
  },
  {
    defence: 'what a flush leaves waiting owns its memory',
    edits: [['protocol/wire/yamux/outgoing.ts', 'if (stream.waits) stream.queue.waits()', '']],
    tests: WRITER,
  },
  {
    defence: 'small pieces that wait for a stream are gathered',
    edits: [
      [
        'protocol/wire/yamux/send-queue.ts',
        'if (chunk.length < SMALL_PIECE_BYTES) return new Gathered(chunk, this.bytes)\n',
        '\n',
      ],
    ],
    tests: SEND_QUEUE,
  },
  {
    defence: 'streams that are over leave the queues of a session that may not send',
    edits: [['protocol/wire/yamux/yamux-session.ts', 'this.#out.over()\n', '\n']],
    tests: WRITER,
  },
  {
    defence: 'small chunks that wait for a caller or an upstream own their memory',
    edits: [['protocol/http/http1/socket-writer.ts', 'const waits = this.waiting > 0', 'const waits = false']],
    tests: OWN_BYTES,
  },
  {
    defence: 'single bytes that wait for a caller or an upstream are gathered',
    edits: [['protocol/http/http1/socket-writer.ts', 'this.waiting === 0 || !this.#gather()', 'true']],
    tests: OWN_BYTES,
  },
  {
    defence: 'pieces of one byte that wait in a body in chunks share their framing',
    edits: [['protocol/http/http1/socket-writer.ts', 'SMALL_PIECE_BYTES && mayShare', 'SMALL_PIECE_BYTES && false']],
    tests: OWN_BYTES,
  },
  {
    defence: 'small chunks that wait over HTTP/2 own their memory',
    edits: [['protocol/http/http2/stream.ts', 'ownBytes(given)', 'given']],
    tests: OWN_BYTES,
  },
  // Router
  {
    defence: 'hop-by-hop removal: what Connection names',
    edits: [
      [
        'protocol/http/http1/head-parser.ts',
        'if (named !== undefined) removeWhere(head.headers, name => named.has(name))',
        '',
      ],
    ],
    tests: ROUTER,
  },
  {
    defence: 'hop-by-hop removal: the fixed list',
    edits: [
      ['protocol/http/field-names.ts', "  ['proxy-authorization', FIELD_KIND.dropped],\n", ''],
      ['protocol/http/field-names.ts', "  ['http2-settings', FIELD_KIND.dropped],\n", ''],
    ],
    tests: ROUTER,
  },
  {
    defence: 'trusted-proxy check',
    edits: [
      [
        'protocol/http/forwarded.ts',
        'const fromTrustedProxy = trusted.length > 0 && cidrsContain(trusted, request.peerAddress)',
        'const fromTrustedProxy = true',
      ],
    ],
    tests: ROUTER,
  },
  {
    defence: "a caller's claims about itself",
    edits: [
      ['router/handler/headers.ts', 'isForwardedName(name) ? !isInboxField(request, name) : ', ''],
      ['protocol/http/forwarded.ts', 'isRequestId(name) || isClaim(name)', 'isRequestId(name)'],
    ],
    tests: ROUTER,
  },
  {
    defence: 'a mount that a caller names',
    edits: [['protocol/http/headers.ts', ' && MOUNT_NAMES.has(dashed(name))', ' && false']],
    tests: ROUTER,
  },
  {
    defence: 'all readings of a path lead to one route',
    edits: [
      [
        'router/match.ts',
        'if (others.some(other => routeOf(withoutName(table, request, other)) !== route)) return MANY_WAYS',
        '',
      ],
    ],
    tests: ROUTER,
  },
  {
    defence: 'a second path reaches no service that is guarded in part',
    edits: [['router/handler/decide.ts', 'table.guardedInPart.has(route) && ', 'false && ']],
    tests: ROUTER,
  },
  {
    defence: 'dot segments',
    edits: [['router/path.ts', 'if (REFUSED.test(decoded)) return undefined', '']],
    tests: ROUTER,
  },
  {
    defence: 'DNS-label check',
    edits: [
      [
        'router/target.ts',
        'if (name === undefined || !isDnsLabel(name)) return undefined',
        'if (name === undefined) return undefined',
      ],
      ['router/target.ts', 'if (captured && !isServiceName(host)) return undefined', ''],
    ],
    tests: ROUTER,
  },
  {
    defence: 'unusual notations of addresses',
    edits: [
      [
        'router/target.ts',
        '!HOST_NAME.test(host) || endsInNumber(host)) return false',
        '!HOST_NAME.test(host)) return false',
      ],
    ],
    tests: ROUTER,
  },
  {
    defence: 'names that callers make up are looked up one at a time',
    edits: [
      ['router/upstream/name-lookups.ts', 'target.captured ? capturedNames : configuredNames', 'configuredNames'],
    ],
    tests: CAPTURED_NAMES,
  },
  {
    defence: 'networks take turns with the names that they make up',
    edits: [['router/upstream/name-lookups.ts', 'networkOf(caller), answer)', "'', answer)"]],
    tests: CAPTURED_NAMES,
  },
  {
    defence: "upstreams' certificates are checked",
    edits: [['router/upstream/dial.ts', 'rejectUnauthorized: !identity.insecure,', 'rejectUnauthorized: false,']],
    tests: ROUTER,
  },
  {
    defence: 'connections are kept by TLS identity',
    edits: [['router/target.ts', "tls?.key ?? ''", "''"]],
    tests: ROUTER,
  },
  {
    defence: 'a network leaves others some of the connections to all targets',
    edits: [['router/upstream/places.ts', ' || this.budget.shares.isGreedy(caller)', '']],
    tests: NETWORK_SHARES,
  },
  {
    defence: 'an HTTP/2 connection to a target carries requests of one network of callers',
    edits: [
      ['router/upstream/http2-pool.ts', 'of this.#usable.of(networkOf(caller))', "of this.#usable.of('')"],
      [
        'router/upstream/http2-pool.ts',
        'this.#usable.move(this, networkOf(request.caller))',
        "this.#usable.move(this, '')",
      ],
    ],
    tests: HTTP2_SHARING,
  },
  {
    defence: 'an HTTP/2 connection to a target that was reset often is not used any more',
    edits: [['protocol/http/http2/client-session.ts', 'else if (!stream.refused) this.#countReset()', '']],
    tests: HTTP2_SHARING,
  },
  {
    defence: 'a connection to a target counts until its socket is gone',
    edits: [['router/upstream/places.ts', 'if (socket.destroyed) {', 'if (true) {']],
    tests: OPEN_SOCKETS,
  },
  {
    defence: 'nothing is forwarded twice',
    edits: [
      ['router/upstream/exchange.ts', 'if (bodyBytes === 0 && isRepeatable(this.#request)) return true', 'return true'],
    ],
    tests: ROUTER,
  },
  {
    defence: "an upstream's sallyport-error",
    edits: [['router/handler/headers.ts', 'removeHeader(headers, OURS)', '']],
    tests: ROUTER,
  },
  // Directory
  {
    defence: 'epoch check at a replica',
    edits: [
      [
        'server/registry.ts',
        "state === 'unknown' || state.epoch !== epoch) return undefined",
        "state === 'unknown') return undefined",
      ],
    ],
    tests: ['test/replicas/hop.test.ts'],
  },
  {
    defence: 'a superseded instance gets no stream',
    edits: [
      [
        'server/registry.ts',
        'const all = this.#runtimes.get(runtime)?.get(active)?.live',
        'const all = [...(this.#runtimes.get(runtime)?.values() ?? [])].flatMap(one => one.live)',
      ],
    ],
    tests: ['test/server/edge.test.ts', 'test/server/registry.test.ts'],
  },
  {
    defence: 'a host of its own leads to sessions whose token names it',
    edits: [['server/registry.ts', 'const live = ownHost === undefined ? all', 'const live = true ? all']],
    tests: ['test/server/own-hosts.test.ts'],
  },
  {
    defence: 'a replica looks for a token that names the host',
    edits: [['server/peer/splice.ts', 'pick(runtime, epoch, ownHost)', 'pick(runtime, epoch)']],
    tests: ['test/server/peer/splice.test.ts'],
  },
  {
    defence: 'webhooks for a host that no token names are not stored',
    edits: [['server/inbox/announced-rules.ts', 'if (!isOwnHost) return', 'if (false) return']],
    tests: ['test/server/inbox/own-hosts.test.ts'],
  },
  {
    defence: "one network leaves a third of the memory for webhooks' bodies to others, whichever runtimes it uses",
    edits: [['server/inbox/kept-body.ts', 'this.#limitsNetworks ? this.#byPayer.of(network) : 0', '0']],
    tests: ['test/server/inbox/shares.test.ts'],
  },
  {
    defence: 'one network does not fill the inbox of all runtimes',
    edits: [['server/inbox/intake.ts', 'if (this.#ledger.isScarceForAll)', 'if (false)']],
    tests: ['test/server/inbox/shares.test.ts'],
  },
  {
    defence: 'a network that has bytes wait at many runtimes pays for all of them',
    edits: [['protocol/base/greediest.ts', 'network.bytes > owner.bytes ? network : owner', 'owner']],
    tests: [
      'test/protocol/wire/yamux/shares.test.ts',
      'test/protocol/base/replay-budget.test.ts',
      'test/security/across-runtimes.test.ts',
    ],
  },
  {
    defence: 'a handshake that began under other authorities',
    edits: [['protocol/http/listener.ts', 'hasGone(socket) || this.#isOutdated(socket)', 'hasGone(socket)']],
    tests: ['test/security/access.test.ts'],
  },
  {
    defence: 'a replica is identified by its subject alternative name',
    edits: [['server/peer/tls.ts', "checkHost(PEER_NAME, { subject: 'never' })", 'checkHost(PEER_NAME)']],
    tests: ['test/server/peer/tls.test.ts'],
  },
  // Admin
  {
    defence: 'Host of the admin listener',
    edits: [
      ['admin/listener.ts', 'const hostAllowed = isHostAllowed(request.headers.host)', 'const hostAllowed = true'],
    ],
    tests: ADMIN,
  },
  {
    defence: 'token of the admin listener',
    edits: [['admin/listener.ts', 'if (!hasToken) return hostAllowed ? NEEDS_TOKEN : WRONG_HOST', '']],
    tests: ADMIN,
  },
  {
    defence: 'a code opens the page once',
    edits: [['admin/web/logins.ts', 'this.#codes.delete(key)', '']],
    tests: ['test/admin/site.test.ts'],
  },
  {
    defence: "a login opens only the page's event stream",
    edits: [['admin/web/site.ts', "if (path !== '/ui/events') return undefined", '']],
    tests: ['test/admin/site.test.ts'],
  },
  {
    defence: 'requests from other sites get nothing of the page',
    edits: [['admin/web/site.ts', 'if (isElsewhere(request)) return ELSEWHERE', '']],
    tests: ['test/admin/site.test.ts'],
  },
  {
    defence: 'a runtime file of another user is not trusted',
    edits: [['admin/runtime-file.ts', 'return own === undefined || uid === own || uid === 0', 'return true']],
    tests: ADMIN,
  },
  {
    defence: 'only a token is sent to an admin listener',
    edits: [['cli/admin-client.ts', '/^[!-~]{1,8192}$/.test(token)', 'true']],
    tests: ADMIN,
  },
  {
    defence: 'bounded labels of metrics',
    edits: [['admin/exchange-counts.ts', 'Object.hasOwn(ERRORS, code) ? code : OTHER', 'true ? code : OTHER']],
    tests: ADMIN,
  },
  {
    defence: 'secrets are masked',
    edits: [['cli/config/masked.ts', "if (setting.secret && !/^https?:\\/\\/\\S+$/.test(text)) return '***'", '']],
    tests: ['test/cli/commands.test.ts', 'test/security/secrets.test.ts'],
  },
]
