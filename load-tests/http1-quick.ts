/**
 * CPU per request of the HTTP/1.1 listener alone, with a handler that answers "hello world" at once.
 *
 *     node load-tests/http1-quick.ts [connections] [seconds]
 *
 * The listener runs in a separate process and reports its CPU time. autocannon runs in this one.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import autocannon from 'autocannon'
import { listen } from '../protocol/http/listener.ts'

const BODY = Buffer.from('hello world')

async function serve(): Promise<void> {
  const listener = await listen({
    port: 0,
    handler: (_request, response) => {
      response.responseHead({ status: 200, headers: ['content-type', 'text/plain'], bodyBytes: BODY.length })
      response.responseData(BODY)
      response.responseEnd([])
      return {
        requestData: chunk => response.requestConsumed(chunk.length),
        requestEnd() {},
        requestAbort() {},
        responseConsumed() {},
      }
    },
  })
  process.on('message', () => process.send?.(process.cpuUsage()))
  process.on('disconnect', () => process.exit())
  process.send?.(listener.address.port)
}

async function cpuMs(child: ChildProcess): Promise<number> {
  child.send('cpu')
  const [usage] = (await once(child, 'message')) as [NodeJS.CpuUsage]
  return (usage.user + usage.system) / 1000
}

async function measure(connections: number, duration: number): Promise<void> {
  const child = fork(import.meta.filename, ['serve'])
  const [port] = (await once(child, 'message')) as [number]
  const url = `http://127.0.0.1:${port}/`
  await autocannon({ url, connections, duration: 1 })
  const before = await cpuMs(child)
  const result = await autocannon({ url, connections, duration })
  const cpu = (await cpuMs(child)) - before
  const requests = result.requests.total
  console.log(
    `${connections} connections: ${Math.round(result.requests.average)} requests/s, ` +
      `${((cpu * 1000) / requests).toFixed(1)} us of CPU per request, p99 ${result.latency.p99} ms, ` +
      `${result.errors + result.non2xx} errors`,
  )
  child.disconnect()
}

if (process.argv[2] === 'serve') await serve()
else await measure(Number(process.argv[2] ?? 64), Number(process.argv[3] ?? 5))
