import { Duplex } from 'node:stream'
import { connect } from 'node:tls'

/** The bytes that a real TLS client begins with. */
export function clientHello(servername: string): Promise<Buffer> {
  return new Promise(resolve => {
    const wire = new Duplex({
      read() {},
      write(chunk: Buffer, _encoding, done) {
        resolve(chunk)
        done()
      },
    })
    connect({ socket: wire, servername }).on('error', () => {})
  })
}
