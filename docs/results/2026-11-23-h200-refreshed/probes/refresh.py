"""refresh.py MODE...: GPU time of BERT's graph in a process of its own, 5 ms apart, over time: alone, after setting something else up, beside a training, after it."""
import json, statistics as st, sys, time
import pair
def serve():
    from worker import Lines
    lines=Lines()
    import torch, training_models
    import inference_models
    svc=inference_models.build("bert-graph")
    a,b=(torch.cuda.Event(enable_timing=True) for _ in range(2))
    keep=[]
    lines.say({"ready":True})
    while True:
        q=lines.poll(None); out=[]
        if q.get("set up"): keep.append(training_models.build(q["set up"])); torch.cuda.synchronize()
        for i in range(q["n"]):
            a.record()
            with torch.inference_mode(): svc.run()
            b.record(); torch.cuda.synchronize()
            out.append(a.elapsed_time(b)*1e3)
            time.sleep(0.005)
        lines.say({"us":out})
def measure(mode,place):
    high=pair.start(place,"high"); high.answer(60)
    def blocks(label, count, **more):
        medians=[]
        for i in range(count):
            high.say(json.dumps({"n":50,**(more if i==0 else {})})); us=high.answer(60)["us"]; medians.append((round(st.median(us)),round(st.quantiles(us,n=100)[98])))
        print(f"{mode:32s} {label:36s} median/p99 of 50 each: "+" ".join(f"{m}/{p}" for m,p in medians),flush=True)
    blocks("alone",8)
    blocks("after building pointnet there, too",8,**{"set up":"pointnet"})
    for training in ("pointnet","resnet50"):
        low=pair.start(place,"low",training); low.answer(60)
        blocks(f"{training} is there",4)
        low.say(json.dumps({"seconds":6})); time.sleep(0.5)
        blocks(f"beside {training}",12)
        print(mode, training, low.answer(30)["steps"],"steps in 6 s",flush=True)
        blocks("then",4)
        low.end(5); time.sleep(0.3)
        blocks(f"{training} has left",4)
    high.end(5)
    if hasattr(place.way,"ctl"): print(pair.executors(place), place.way.log()[-500:],flush=True)
pair.main(serve,measure,sys.argv[1:])
