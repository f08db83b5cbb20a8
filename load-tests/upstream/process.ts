/** The app as a separate process, for `npm run bench`. Prints its port. */
import type { AddressInfo } from 'node:net'
import { serveApp } from './app.ts'

const server = await serveApp('127.0.0.1', 0)
process.stdout.write(`${(server.address() as AddressInfo).port}\n`)
