/** SETTINGS of HTTP/2 (RFC 9113 section 6.5, RFC 8441 section 3). */
import {
  CODE,
  ConnectionError,
  DEFAULT_WINDOW_BYTES,
  LARGEST_WINDOW_BYTES,
  MAX_FRAME_BYTES,
  uint32,
  uint32At,
} from './frames.ts'

const SETTING = {
  headerTableSize: 1,
  enablePush: 2,
  maxConcurrentStreams: 3,
  initialWindowSize: 4,
  maxFrameSize: 5,
  maxHeaderListSize: 6,
  enableConnectProtocol: 8,
} as const

export type OwnSettings = Partial<Record<keyof typeof SETTING, number>>

/** Payload of a SETTINGS frame, as latin1 text. */
export function settingsPayload(settings: OwnSettings): string {
  let text = ''
  for (const [name, value] of Object.entries(settings)) {
    text += String.fromCharCode(0, SETTING[name as keyof typeof SETTING]) + uint32(value)
  }
  return text
}

/** What a peer has set. The values before its first SETTINGS are the protocol's defaults. */
export class PeerSettings {
  readonly #isServer: boolean
  maxConcurrentStreams = Number.POSITIVE_INFINITY
  /** Window of a new stream. */
  windowBytes = DEFAULT_WINDOW_BYTES
  /** Whether it takes WebSockets. */
  takesConnect = false

  /** `isServer`: the peer is. */
  constructor(isServer: boolean) {
    this.#isServer = isServer
  }

  /** Throws ConnectionError for a value that is not allowed. Unknown settings are ignored, and so are those that do not concern us. */
  apply(payload: Uint8Array, setTableBytes: (bytes: number) => void): void {
    for (let at = 0; at < payload.length; at += 6) {
      const value = uint32At(payload, at + 2)
      switch ((payload[at]! << 8) | payload[at + 1]!) {
        case SETTING.headerTableSize:
          // Each, since the smallest empties the table (RFC 7541 section 4.2).
          setTableBytes(value)
          break
        case SETTING.maxConcurrentStreams:
          this.maxConcurrentStreams = value
          break
        case SETTING.initialWindowSize:
          if (value > LARGEST_WINDOW_BYTES) throw new ConnectionError(CODE.flowControl, 'initial window')
          this.windowBytes = value
          break
        case SETTING.maxFrameSize:
          if (value < MAX_FRAME_BYTES || value > 0xffffff) throw new ConnectionError(CODE.protocol, 'largest frame')
          break
        case SETTING.enablePush:
          if (value > (this.#isServer ? 0 : 1)) throw new ConnectionError(CODE.protocol, 'ENABLE_PUSH')
          break
        case SETTING.enableConnectProtocol:
          if (value > 1) throw new ConnectionError(CODE.protocol, 'ENABLE_CONNECT_PROTOCOL')
          this.takesConnect = value === 1
      }
    }
  }
}
