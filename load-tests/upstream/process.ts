/** The app as a process of its own, for `npm run bench`; prints its port. */
import type { AddressInfo } from 'node:net'
import { serveApp } from './app.ts'

const server = await serveApp('127.0.0.1', 0)
process.stdout.write(`${(server.address() as AddressInfo).port}\n`)
