import type { FuzzTarget } from '../target.ts'
import { bhttp } from './bhttp.ts'
import { caller } from './caller.ts'
import { clientHello } from './client-hello.ts'
import { control } from './control.ts'
import { exchange } from './exchange.ts'
import { http1Edge } from './http1-edge.ts'
import { http1Upstream } from './http1-upstream.ts'
import { http2Edge } from './http2-edge.ts'
import { http2Head } from './http2-head.ts'
import { liveClient } from './live-client.ts'
import { liveHttp1 } from './live-http1.ts'
import { liveHttp2 } from './live-http2.ts'
import { liveServer } from './live-server.ts'
import { liveHttp1Upstream, liveHttp2Upstream } from './live-upstream.ts'
import { preamble } from './preamble.ts'
import { proxyAnswer } from './proxy-answer.ts'
import { proxyProtocol } from './proxy-protocol.ts'
import { routes } from './routes.ts'
import { token } from './token.ts'
import { websocketFrames } from './websocket-frames.ts'
import { yamuxDecoder } from './yamux-decoder.ts'
import { yamuxSession } from './yamux-session.ts'

export const TARGETS: readonly FuzzTarget[] = [
  yamuxDecoder,
  yamuxSession,
  preamble,
  control,
  bhttp,
  exchange,
  http1Edge,
  http1Upstream,
  http2Edge,
  http2Head,
  websocketFrames,
  routes,
  caller,
  token,
  clientHello,
  proxyProtocol,
  proxyAnswer,
  liveHttp1,
  liveHttp2,
  liveClient,
  liveServer,
  liveHttp1Upstream,
  liveHttp2Upstream,
]
