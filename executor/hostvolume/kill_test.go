package hostvolume_test

const helperEnv = "HOSTVOLUME_TEST_HELPER"

func helperMain() {}
