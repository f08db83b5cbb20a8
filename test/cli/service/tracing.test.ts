import { describe, expect, test } from 'vitest'
import { openTracing } from '../../../cli/service/tracing.ts'
import { noLogger } from '../../../protocol/base/log.ts'

describe.each(['ENDPOINT', 'TRACES_ENDPOINT'])('credentials in OTEL_EXPORTER_OTLP_%s', variable => {
  const name = `OTEL_EXPORTER_OTLP_${variable}`
  const open = (more: Record<string, string>, endpoint?: string) =>
    openTracing(
      { tracing: 'otlp', 'tracing.endpoint': endpoint },
      {
        ...{ component: 'server', logger: noLogger, isGiven: () => false },
        environment: { [name]: ' https://user:s3cret@a.example', ...more },
      },
    )

  test('are refused under its name', async () => {
    const message = `${name} must have no credentials: use OTEL_EXPORTER_OTLP_HEADERS`
    await expect(open({})).rejects.toThrow(new TypeError(message))
  })

  test('do not matter if nothing is exported', async () => {
    expect(await open({ OTEL_SDK_DISABLED: 'true' })).toBeUndefined()
    expect(await open({ OTEL_TRACES_EXPORTER: 'none' })).toBeUndefined()
  })

  test('do not matter if a setting names another receiver', async () => {
    const tracing = await open({}, 'http://127.0.0.1:1')
    expect(tracing!.place).toBe('http://127.0.0.1:1/v1/traces')
    await tracing!.close()
  })
})
